#!/bin/sh
# ptx.sh [-check]: compiles the kernels of the CUDA backend to PTX, which is
# committed, compressed. With -check it compares instead, and passes where the
# compiler is not installed: another version of it writes other code.
set -eu
cd "$(dirname "$0")/../internal/cuda/kernels"
clang=${CLANG:-clang-19}

if ! command -v "$clang" >/dev/null; then
	echo "ptx.sh: $clang is not installed"
	[ "${1:-}" = -check ] && { echo "ptx.sh: not checked"; exit 0; }
	exit 1
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# sm_70 is the oldest GPU; the driver compiles for the one that is there.
"$clang" -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -nocudainc -nocudalib -std=c++17 -O3 -S -o "$out/module.ptx" module.cu
if [ "${1:-}" != -check ]; then
	gzip -9nc "$out/module.ptx" > module.ptx.gz
	exit 0
fi
gzip -dc module.ptx.gz > "$out/committed.ptx"
if ! cmp -s "$out/module.ptx" "$out/committed.ptx"; then
	echo "ptx.sh: module.ptx.gz is not that of the kernels; run make ptx"
	exit 1
fi
