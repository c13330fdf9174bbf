#!/bin/bash
# all.sh OUT: in a folder that prepare.sh made, records and tests all that a GPU can
# tell, in LIMIT seconds (400), of which the last 150 or so run much at once. OUT gets
# out.tar.gz and fuzz.tar.gz, each within 16 MiB. First what must be alone on the GPU: contexts, the
# driver's addresses, kernels and steps that are timed. tools/gpu/README.md says what
# becomes of it.
set -u
[ $# = 1 ] || { echo "usage: $0 OUT" >&2; exit 2; }
begun=$(date +%s) limit=${LIMIT:-400}
say() { echo "[$(( $(date +%s) - begun )) s] $*"; }
mkdir -p "$1"
to=$(cd "$1" && pwd)
cd "$(dirname "$0")"
work=$PWD
export PYTHONUNBUFFERED=1 CUDA_CACHE_MAXSIZE=2147483648
mkdir -p out runs
gunzip -f memplan.gz cuda.test.gz 2>/dev/null
chmod +x memplan cuda.test
nvidia-smi > out/smi.txt
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,clocks.max.sm,clocks.sm --format=csv | tee -a out/smi.txt
python3 -m pip list > out/pip.txt 2>/dev/null
python3 -c "import torch; print('PyTorch', torch.__version__, 'cuDNN', torch.backends.cudnn.version())" || exit

say "alone: contexts, the driver"
timeout 80 python3 record.py "$work/suite" --only exclusive --minutes 1.2 2>&1 | tail -8
timeout 40 ./memplan calibrate 2>&1 | tee out/calibrate.txt

say "alone: kernels are compiled and timed"
CUDA_CACHE_DISABLE=1 MEMPLAN_MEASURE=$work/out/cuda.json timeout 90 ./cuda.test -test.v -test.run 'TestMeasure$' > out/measure.log 2>&1
tail -12 out/measure.log

say "alone: steps of memplan's backend and of PyTorch"
ran() { # ran NAME ARGUMENTS...
	name=$1
	shift
	timeout 50 ./memplan run "$@" --format json > "runs/$name.json" 2> "runs/$name.err" || echo "$name: $? $(head -c 300 "runs/$name.err" | tr '\n' ' ')"
}
ran lenet-cuda preset:lenet --backend cuda --steps 3
for backend in cuda torch; do
	ran gpt2-fp32-$backend preset:gpt2 --backend $backend --steps 6 --batch-size 4 --precision fp32
	ran gpt2-bf16-$backend preset:gpt2 --backend $backend --steps 6 --batch-size 8 --precision amp-bf16
	ran resnet50-fp32-$backend preset:resnet --set params.depth=50 --backend $backend --steps 6 --batch-size 32 --precision fp32
	ran resnet50-bf16-$backend preset:resnet --set params.depth=50 --backend $backend --steps 6 --batch-size 64 --precision amp-bf16
done
python3 - <<'EOF'
import glob, json
for f in sorted(glob.glob("runs/*.json")):
    try:
        d = json.load(open(f))
    except ValueError as e:
        print(f, e)
        continue
    print(f, [round(x, 1) for x in d["step_ms"]], d["losses"][:2], "predicted", d["predicted"], "measured", d["measured"], d["trace"])
EOF

left=$(( limit - 15 - ($(date +%s) - begun) ))
[ $left -gt 60 ] || left=60
say "much at once, for $left s"
(timeout -k 3 $left python3 record.py "$work/suite" --only parallel --minutes "$(python3 -c "print(($left - 12) / 60)")" --jobs 8 > out/record.log 2>&1; say recorded) &
(cd fuzz && timeout -k 3 $left python3 record.py all.txt 9 > ../out/fuzz.log 2>&1; say programs) &
(timeout -k 3 $left ./cuda.test -test.v -test.run 'TestKernels|TestWays|TestProducts|TestOrder|TestTrain|TestPresets|TestGradients|TestExpandable|TestMemory|TestClose' > out/cudatest.log 2>&1; say "CUDA tests: $?") &
(timeout -k 3 $left xargs -P 2 -I{} sh -c 'timeout 60 ./memplan run preset:{} --backend cuda --steps 3 --format json > runs/cuda-{}.json 2> runs/cuda-{}.err' < presets.txt; say presets) &
(mkdir -p recorded && timeout -k 3 $left xargs -P 4 -L 1 ./library.sh < library.txt > out/library.log 2>&1; say scripts) &
wait
grep -E "^ *--- (FAIL|PASS)" out/cudatest.log | sort | uniq -c | sort -rn | head -40
tail -20 out/record.log
cat out/library.log
tar cf - out runs suite recorded | gzip -6 > "$to/out.tar.gz"
(cd fuzz && find . -name '*.json' | tar cf - -T - | gzip -6 > "$to/fuzz.tar.gz" && find . -name '*.json' | wc -l)
ls -l "$to"
say done
