#!/bin/sh
# prepare.sh FOLDER: makes a folder with all that all.sh runs on a machine with a GPU,
# which needs a driver and a Python with PyTorch, and may have no network: the CUDA
# tests, memplan, random programs as scripts of PyTorch (RELEASE, as in 2.11), and
# what records. Copy it there, and run all.sh in it.
set -eu
[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1"
to=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
release=${RELEASE:-2.11}
make cuda-gpu-test
CGO_ENABLED=1 CGO_CFLAGS="-I$PWD/internal/cuda/driver" CGO_LDFLAGS="-L$PWD/bin/cuda" go build -trimpath -ldflags='-s -w' -tags cuda -o "$to/memplan" ./cmd/memplan
cp bin/cuda.test "$to"
gzip -9 -f "$to/memplan" "$to/cuda.test"
cp -r tools/gpu/* "$to"
go build -o bin/fuzztruth ./tools/fuzztruth
seed=${SEED:-2811000}
programs="programs:70 presets:60 options:40 attention:50 optimizers:30 checkpoint:25 breadth:40 last:35 calls:20 adapted:15
	statements:20 gradients:20 values:15 names:10 carried:10 allocator:25 ddp:10 tp:8 operators:100"
for draw in $programs; do
	seed=$((seed + 1000)) kind=${draw%:*}
	bin/fuzztruth -kind "$kind" -seed $seed -n "${draw#*:}" -release "$release" -away "$to/fuzz/$kind" || true # some cannot be drawn
done
# Presets as they are.
go build -o bin/memplan ./cmd/memplan
bin/memplan list presets --format json | sed -n 's/^    "name": "\([a-z0-9_]*\)",$/\1/p' > "$to/presets.txt"
mkdir -p "$to/whole"
while read -r preset; do
	for precision in fp32 amp-bf16; do
		printf 'memplan: 1\nmodel: {preset: %s}\ntrain: {precision: %s}\n' "$preset" $precision > "$to/whole/$preset-$precision.yaml"
	done
done < "$to/presets.txt"
bin/fuzztruth -release "$release" -away "$to/fuzz/whole" "$to"/whole/*.yaml || true # jobs of several models are no model
rm -f "$to"/fuzz/*/pretend.py "$to"/fuzz/*/recorder.py "$to"/fuzz/*/library.py "$to"/fuzz/*/cudnn.json
for kind in "$to"/fuzz/*/; do
	mv "$kind/record.py" "$kind/standin.py" "$to/fuzz"
done
# One of each kind, then the next of each, so that a run that is cut off has some of all.
for list in "$to"/fuzz/*/list.txt; do
	kind=$(basename "$(dirname "$list")")
	awk -v kind="$kind" '{ $2 = kind "/" $2; lines[NR] = $0 } END { for (i = 1; i <= NR; i++) print i / NR, lines[i] }' "$list"
done | sort -s -n -k 1,1 | cut -d ' ' -f 2- > "$to/fuzz/all.txt"
du -sh "$to"
