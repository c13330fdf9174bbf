#!/bin/sh
# gpu.sh TEST-BINARY OUT.json: tests the CUDA backend on the GPU of this machine
# and measures it: the bytes of a context and of the modules, the granularity of
# cuMemAlloc, how long the kernels take to be compiled and what registers they have
# then, their errors, their speed. Large products must reach the share of the GPU's
# peak that measure_speed_test.go names. Only the driver and nvidia-smi are needed
# here; make cuda-gpu-test builds the binary, bin/cuda.test, on any Linux machine of
# the same architecture with glibc of the same age or older.
# What it writes belongs into testdata/measured/cuda-GPU.json. The last line says
# what failed.
set -u
[ $# = 2 ] || { echo "usage: $0 TEST-BINARY OUT.json" >&2; exit 2; }
test=$1 out=$2 failed=
unset MEMPLAN_LIBCUDA

step() { # step WHAT COMMAND...
	what=$1
	shift
	echo "=== $what"
	"$@" || failed="$failed, $what"
}

echo "=== $(nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,clocks.max.sm --format=csv,noheader | head -1)"
step "kernels against sums in float64" env MEMPLAN_CUDA_RUNS="${RUNS:-40}" "$test" -test.run 'TestKernels|TestWays|TestProducts|TestOrder'
step "models against the CPU" "$test" -test.run 'TestTrain'
# The driver keeps what it compiled; the time is that of the first run.
step "measurements" env CUDA_CACHE_DISABLE=1 MEMPLAN_MEASURE="$out" "$test" -test.v -test.run 'TestMeasure$'
if command -v compute-sanitizer >/dev/null; then
	for tool in memcheck racecheck initcheck synccheck; do
		step "compute-sanitizer $tool" env MEMPLAN_CUDA_RUNS=1 compute-sanitizer --tool "$tool" --error-exitcode 3 "$test" -test.run 'TestKernels|TestWays|TestProducts'
	done
else
	echo "=== compute-sanitizer is not installed: races were not looked for"
fi
[ -z "$failed" ] || { echo "=== failed: ${failed#, }"; exit 1; }
echo "=== wrote $out"
