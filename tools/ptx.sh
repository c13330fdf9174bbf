#!/bin/sh
# ptx.sh [-check]: compiles the kernels of the CUDA backend to PTX, which is
# committed, compressed, with the version of the compiler and the hash of the
# sources in its first lines (a Go test looks at the hash). With -check it compares
# instead, and passes where that compiler is not installed: another version may
# write other code.
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
version="// $("$clang" --version | head -1 | grep -o 'clang version [0-9.]*')"
sources="// sources $(cat $(LC_ALL=C ls *.cu *.cuh *.h) | sha256sum | cut -c1-64)"

# bare takes comments and space out of the code, a tenth of it when compressed, but not the lines at which the
# backend divides it.
bare() {
	tab=$(printf '\t')
	sed -e "/^$tab\/\/ \.globl$tab/{" -e "s: *// -- .*::" -e b -e '}' -e "s:[ $tab]*//.*::" -e "s/^$tab*//" -e "s/ $tab/ /" -e '/^$/d'
}

# module NAME GPU PTX: one of the modules, for the oldest GPU that it is for, in the
# oldest version of PTX that has its instructions; the driver compiles for the GPU
# that is there.
module() {
	if [ "${check:-}" ]; then
		gzip -dc "$1.ptx.gz" > "$out/committed.ptx"
		committed=$(head -1 "$out/committed.ptx")
		if [ "$committed" != "$version" ]; then
			echo "ptx.sh: compiled by ${committed#// }, installed is ${version#// }: not checked"
			return
		fi
	fi
	{
		echo "$version"
		echo "$sources"
		"$clang" -x cuda --cuda-device-only --cuda-gpu-arch="$2" --cuda-feature=+"$3" -nocudainc -nocudalib -std=c++17 -O3 -S -o - "$1.cu" | bare
	} > "$out/module.ptx"
	if [ ! "${check:-}" ]; then
		gzip -9nc "$out/module.ptx" > "$1.ptx.gz"
	elif ! cmp -s "$out/module.ptx" "$out/committed.ptx"; then
		echo "ptx.sh: $1.ptx.gz is not that of the kernels; run make ptx"
		exit 1
	fi
}

[ "${1:-}" = -check ] && check=yes
module module sm_70 ptx60
module module_80 sm_80 ptx70
