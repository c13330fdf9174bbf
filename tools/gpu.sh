#!/bin/sh
# gpu.sh TEST-BINARY OUT.json: tests the CUDA backend on the GPU of this machine
# and measures it: the bytes of a context and of the module, the granularity of
# cuMemAlloc, how long the kernels take to be compiled, their errors, the speed of
# products of matrices. Only the driver and nvidia-smi are needed here; make
# cuda-gpu-test builds the binary, bin/cuda.test, on any Linux machine of the same
# architecture with glibc of the same age or older.
# What it writes belongs into testdata/measured/cuda-GPU.json.
set -eu
[ $# = 2 ] || { echo "usage: $0 TEST-BINARY OUT.json" >&2; exit 2; }
test=$1 out=$2
unset MEMPLAN_LIBCUDA

echo "=== $(nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv,noheader | head -1)"
# The driver keeps what it compiled; the time is that of the first run.
CUDA_CACHE_DISABLE=1 MEMPLAN_MEASURE=$out "$test" -test.v -test.run 'TestMeasure$'
echo "=== kernels against sums in float64"
MEMPLAN_CUDA_RUNS=${RUNS:-40} "$test" -test.run 'TestKernels|TestWays|TestOrder'
if command -v compute-sanitizer >/dev/null; then
	for tool in memcheck racecheck initcheck synccheck; do
		echo "=== compute-sanitizer $tool"
		MEMPLAN_CUDA_RUNS=1 compute-sanitizer --tool "$tool" --error-exitcode 3 "$test" -test.run 'TestKernels|TestWays'
	done
else
	echo "=== compute-sanitizer is not installed: races were not looked for"
fi
echo "=== wrote $out"
