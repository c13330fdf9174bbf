#!/bin/sh
# ptxas.sh: assembles the committed PTX with NVIDIA's assembler for GPUs of each
# generation, where ptxas is on the PATH, and prints the functions that do not find
# room in registers for all that they hold, and those of products. It is what the
# driver does with the code; an error here is one that a user would see.
set -eu
cd "$(dirname "$0")/../internal/cuda/kernels"
command -v ptxas >/dev/null || { echo "ptxas.sh: ptxas is not on the PATH: not checked"; exit 0; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
assemble() { # assemble MODULE GPU
	gzip -dc "$1.ptx.gz" > "$out/module.ptx"
	ptxas -arch="$2" -v -o /dev/null "$out/module.ptx" 2> "$out/log" || { cat "$out/log"; exit 1; }
	awk -v on="$2" '
		/Compiling entry function/ { gsub("\047", ""); name = $7 }
		/spill stores/ { spilled = $5 }
		/Used [0-9]+ registers/ {
			match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
			if (spilled > 0 || name ~ /^gemm_[0-9]|_tile/) printf "%s %s: %d registers, %d bytes spilled\n", on, name, registers, spilled
			n++
		}
		END { printf "%s: %d functions\n", on, n }' "$out/log"
}
for gpu in sm_70 sm_75 sm_80 sm_86 sm_90; do assemble module $gpu; done
for gpu in sm_80 sm_86 sm_90; do assemble module_80 $gpu; done
