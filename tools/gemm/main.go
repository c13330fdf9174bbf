// Command gemm writes the assembly of package gemm: kernel_amd64.s and kernel_arm64.s,
// in the folder in which it runs.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"
)

// A kernel adds alpha times the product of two panels to a tile of c. Each number
// of the tile is summed in a register of its own, in the order of the depth, by
// fused multiplication and addition; so that all kernels give the same bits.
type kernel struct {
	name         string
	size         int // bytes of a number
	rows, across int // of the tile, in numbers and in vectors
}

type writer struct{ strings.Builder }

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, "\t"+format+"\n", args...) }

func (w *writer) begin(k kernel, t string) {
	fmt.Fprintf(w, "\n// func %s(depth int, a, b, c *%s, row int, alpha %[2]s)\n", k.name, t)
	fmt.Fprintf(w, "TEXT ·%s(SB), NOSPLIT, $0-%d\n", k.name, 40+k.size)
}

// amd64 writes a kernel for vectors named by letter (Y or Z) of width bytes.
func (w *writer) amd64(k kernel, letter string, width int) {
	t, suffix, wide := "float32", "PS", "SS"
	if k.size == 8 {
		t, suffix, wide = "float64", "PD", "SD"
	}
	acc := func(i, j int) string { return fmt.Sprintf("%s%d", letter, k.across+2+i*k.across+j) }
	factor := func(i int) string { return fmt.Sprintf("%s%d", letter, k.across+i%2) }
	w.begin(k, t)
	w.line("MOVQ depth+0(FP), CX")
	w.line("MOVQ a+8(FP), AX")
	w.line("MOVQ b+16(FP), BX")
	w.line("MOVQ c+24(FP), DI")
	w.line("MOVQ row+32(FP), DX")
	w.line("SHLQ $%d, DX", map[int]int{4: 2, 8: 3}[k.size])
	zero := "VXORPS"
	if letter == "Z" {
		zero = "VPXORQ"
	}
	for i := range k.rows {
		for j := range k.across {
			w.line("%s %s, %[2]s, %[2]s", zero, acc(i, j))
		}
	}
	fmt.Fprintf(w, "\nloop:\n")
	for j := range k.across {
		w.line("VMOVU%s %d(BX), %s%d", suffix, j*width, letter, j)
	}
	for i := range k.rows {
		w.line("VBROADCAST%s %d(AX), %s", wide, i*k.size, factor(i))
		for j := range k.across {
			w.line("VFMADD231%s %s%d, %s, %s", suffix, letter, j, factor(i), acc(i, j))
		}
	}
	w.line("ADDQ $%d, AX", k.rows*k.size)
	w.line("ADDQ $%d, BX", k.across*width)
	w.line("DECQ CX")
	w.line("JNZ loop")
	w.line("VBROADCAST%s alpha+40(FP), %s0", wide, letter)
	for i := range k.rows {
		for j := range k.across {
			w.line("VMUL%s %s0, %s, %[3]s", suffix, letter, acc(i, j))
			w.line("VADD%s %d(DI), %s, %[3]s", suffix, j*width, acc(i, j))
			w.line("VMOVU%s %s, %d(DI)", suffix, acc(i, j), j*width)
		}
		if i < k.rows-1 {
			w.line("ADDQ DX, DI")
		}
	}
	w.line("VZEROUPPER")
	w.line("RET")
}

// turn writes a function that packs rows of float32, whose numbers lie side by side,
// as a part of a panel: for each column the numbers of the rows (8, or 6 of a panel
// that has no more) side by side. Four columns are transposed at a time, rows from
// the fifth on in the upper halves of the vectors.
func (w *writer) turn(name string, rows int) {
	fmt.Fprintf(w, "\n// func %s(columns int, from *float32, row int, to *float32, width int)\n", name)
	fmt.Fprintf(w, "TEXT ·%s(SB), NOSPLIT, $0-40\n", name)
	w.line("MOVQ columns+0(FP), CX")
	w.line("MOVQ from+8(FP), SI")
	w.line("MOVQ row+16(FP), DX")
	w.line("MOVQ to+24(FP), DI")
	w.line("MOVQ width+32(FP), BX")
	w.line("SHLQ $2, DX")
	w.line("SHLQ $2, BX")
	w.line("LEAQ (DX)(DX*2), R8")  // three rows
	w.line("LEAQ (SI)(DX*4), R9")  // the fifth row
	w.line("LEAQ (BX)(BX*2), R10") // three columns of the panel
	fmt.Fprintf(w, "\nloop:\n")
	for i, at := range []string{"", "(DX*1)", "(DX*2)", "(R8*1)"} {
		w.line("VMOVUPS (SI)%s, X%d", at, i)
		if i+4 < rows {
			w.line("VINSERTF128 $1, (R9)%s, Y%d, Y%[2]d", at, i)
		}
	}
	// Pairs of rows, then all four: a column in each half.
	w.line("VUNPCKLPS Y1, Y0, Y4")
	w.line("VUNPCKHPS Y1, Y0, Y5")
	w.line("VUNPCKLPS Y3, Y2, Y6")
	w.line("VUNPCKHPS Y3, Y2, Y7")
	for j := range 4 {
		w.line("VSHUFPS $%#x, Y%d, Y%d, Y%d", 0x44+j%2*0xaa, 6+j/2, 4+j/2, j)
	}
	for j, at := range []string{"", "(BX*1)", "(BX*2)", "(R10*1)"} {
		if rows == 8 {
			w.line("VMOVUPS Y%d, (DI)%s", j, at)
			continue
		}
		w.line("VMOVUPS X%d, (DI)%s", j, at)
		w.line("VEXTRACTF128 $1, Y%d, X4", j)
		w.line("VMOVLPS X4, 16(DI)%s", at)
	}
	w.line("ADDQ $16, SI")
	w.line("ADDQ $16, R9")
	w.line("LEAQ (DI)(BX*4), DI")
	w.line("SUBQ $4, CX")
	w.line("JNZ loop")
	w.line("VZEROUPPER")
	w.line("RET")
}

// arm64 writes a kernel for vectors of 16 bytes. The assembler lacks arithmetic
// on vectors of floating numbers; they are written as words.
func (w *writer) arm64(k kernel) {
	t, lanes, arrangement, double := "float32", 4, "S4", 0
	if k.size == 8 {
		t, lanes, arrangement, double = "float64", 2, "D2", 1
	}
	factors := k.rows / lanes
	acc := func(i, j int) int { return k.across + factors + i*k.across + j }
	list := func(from, n int) string {
		var names []string
		for v := range n {
			names = append(names, fmt.Sprintf("V%d.%s", from+v, arrangement))
		}
		return strings.Join(names, ", ")
	}
	word := func(code int, format string, args ...any) {
		w.line("WORD $%#08x // "+format, append([]any{code}, args...)...)
	}
	w.begin(k, t)
	w.line("MOVD depth+0(FP), R0")
	w.line("MOVD a+8(FP), R1")
	w.line("MOVD b+16(FP), R2")
	w.line("MOVD c+24(FP), R3")
	w.line("MOVD row+32(FP), R4")
	w.line("LSL $%d, R4, R4", map[int]int{4: 2, 8: 3}[k.size])
	for i := range k.rows {
		for j := range k.across {
			w.line("VEOR V%d.B16, V%[1]d.B16, V%[1]d.B16", acc(i, j))
		}
	}
	fmt.Fprintf(w, "\nloop:\n")
	w.line("VLD1.P %d(R2), [%s]", k.across*16, list(0, k.across))
	w.line("VLD1.P %d(R1), [%s]", factors*16, list(k.across, factors))
	for i := range k.rows {
		from, lane := k.across+i/lanes, i%lanes
		for j := range k.across {
			code := 0x4f801000 | from<<16 | j<<5 | acc(i, j)
			if double == 1 {
				code |= 1<<22 | lane<<11
			} else {
				code |= lane>>1<<11 | lane&1<<21
			}
			word(code, "FMLA V%d.%s[%d], V%d.%s, V%d.%[5]s", from, arrangement[:1], lane, j, arrangement, acc(i, j))
		}
	}
	w.line("SUBS $1, R0, R0")
	w.line("BNE loop")
	w.line("MOVD $alpha+40(FP), R5")
	w.line("VLD1R (R5), [%s]", list(k.across, 1))
	for i := range k.rows {
		w.line("VLD1 (R3), [%s]", list(0, k.across))
		for j := range k.across {
			a := acc(i, j)
			word(0x6e20dc00|double<<22|k.across<<16|a<<5|a, "FMUL V%d.%s, V%d.%[2]s, V%[3]d.%[2]s", k.across, arrangement, a)
			word(0x4e20d400|double<<22|a<<16|j<<5|j, "FADD V%d.%s, V%d.%[2]s, V%[3]d.%[2]s", a, arrangement, j)
		}
		w.line("VST1 [%s], (R3)", list(0, k.across))
		if i < k.rows-1 {
			w.line("ADD R4, R3, R3")
		}
	}
	w.line("RET")
}

func (w *writer) save(name string) {
	text := "// Code generated by tools/gemm; DO NOT EDIT.\n\n#include \"textflag.h\"\n" + w.String()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}
}

func main() {
	var amd, arm writer
	amd.amd64(kernel{"single512", 4, 12, 2}, "Z", 64)
	amd.amd64(kernel{"double512", 8, 12, 2}, "Z", 64)
	amd.amd64(kernel{"single256", 4, 6, 2}, "Y", 32)
	amd.amd64(kernel{"double256", 8, 6, 2}, "Y", 32)
	amd.turn("turn8", 8)
	amd.turn("turn6", 6)
	arm.arm64(kernel{"single128", 4, 8, 2})
	arm.arm64(kernel{"double128", 8, 8, 2})
	amd.save("kernel_amd64.s")
	arm.save("kernel_arm64.s")
}
