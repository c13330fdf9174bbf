#!/bin/sh
# library.sh NAME ARGUMENTS OF library.py: records the script on the GPU that memplan
# record pretends, and on the real one, to be compared by memplan diff.
name=$1
shift
timeout 100 ./memplan record -o "recorded/$name.rec.gz" --gpu h100 -- python3 library.py "$@" > "recorded/$name.log" 2>&1 || echo "$name, pretended: failed"
timeout 60 ./memplan record --real -o "recorded/$name.real.rec.gz" -- python3 library.py "$@" > "recorded/$name.real.log" 2>&1 || echo "$name: failed"
