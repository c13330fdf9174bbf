package cuda

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/kernel"
)

// Kernels that are defined by a formula have a function each, whose text is made
// from the formula: kernels/update.cuh.

// updateFunction is the name of the function of such a kernel.
func updateFunction(k *kernel.Kernel) string { return "update_" + k.Name }

// updates plans calls of kernels that are defined by formulas.
func updates(c *kernel.Call) ([]launch, error) {
	ts := operands(c)
	s := over(c.T[0].Size.Len(), ts...)
	return each(updateFunction(c.Kernel), numel(s.size), args{}.doubles(c.F...).sizes(s.size).tensors(s, ts...)), nil
}

// updateSource is kernels/update.cuh.
func updateSource() string {
	var b strings.Builder
	b.WriteString(`// Written by go test ./internal/cuda -update from the formulas of packages optim and kernel.
// Numbers are computed in double precision, elements in single.
#pragma once

INLINE float magnitude(float a) { return a < 0 ? -a : a; }
INLINE float choose(float a, float positive, float negative, float zero) { return a > 0 ? positive : a < 0 ? negative : zero; }
`)
	for _, k := range kernel.All() {
		if k.Formula != nil {
			writeUpdate(&b, k)
		}
	}
	return b.String()
}

func writeUpdate(b *strings.Builder, k *kernel.Kernel) {
	params := []string{}
	number := map[string]bool{}
	for _, n := range k.Floats {
		params, number[n] = append(params, "double n_"+n), true
	}
	params = append(params, "SIZES")
	var names []string
	for _, t := range k.Tensors {
		names = append(names, strings.TrimSuffix(t, "?"))
		params = append(params, "TENSOR(t_"+strings.TrimSuffix(t, "?")+")")
	}
	fmt.Fprintf(b, "\nextern \"C\" __global__ void __launch_bounds__(256) %s(%s) {\n\tSIZES_OF(sizes);\n", updateFunction(k), strings.Join(params, ", "))
	for _, n := range names {
		fmt.Fprintf(b, "\tVIEW(t_%s);\n", n)
	}
	b.WriteString("\ti64 i = BLOCK_X * 256 + TID;\n\tif (i >= sizes.numel) return;\n\tPlace at = place(sizes, i);\n")
	optional := map[string]bool{}
	for i, n := range names {
		value := fmt.Sprintf("get(t_%s, offset(t_%s, at, sizes.rank))", n, n)
		if optional[n] = strings.HasSuffix(k.Tensors[i], "?"); optional[n] {
			value = fmt.Sprintf("t_%s.at ? %s : 0", n, value)
		}
		fmt.Fprintf(b, "\tfloat v_%s = %s;\n", n, value)
	}
	for _, n := range k.Variables() {
		fmt.Fprintf(b, "\tfloat v_%s = 0;\n", n)
	}
	for _, a := range k.Formula {
		b.WriteString("\t")
		switch {
		case number[a.When]:
			fmt.Fprintf(b, "if (n_%s != 0) ", a.When)
		case a.When != "":
			fmt.Fprintf(b, "if (t_%s.at) ", a.When)
		}
		fmt.Fprintf(b, "v_%s = %s;\n", a.To, single(a.Value, number))
	}
	for _, n := range names[:k.Outputs] {
		b.WriteString("\t")
		if optional[n] {
			fmt.Fprintf(b, "if (t_%s.at) ", n)
		}
		fmt.Fprintf(b, "put(t_%s, offset(t_%s, at, sizes.rank), v_%s);\n", n, n, n)
	}
	b.WriteString("}\n")
}

// single is the text of a term in single precision.
func single(t *kernel.Term, number map[string]bool) string {
	text, double := term(t, number)
	if double {
		return "(float)(" + text + ")"
	}
	return text
}

// term is the text of a term, and whether it is made of numbers alone.
func term(t *kernel.Term, number map[string]bool) (text string, double bool) {
	switch {
	case t.Op == "" && t.Name == "":
		return strconv.FormatFloat(t.Number, 'f', 1, 64), true
	case t.Op == "" && number[t.Name]:
		return "n_" + t.Name, true
	case t.Op == "":
		return "v_" + t.Name, false
	}
	functions := map[string]string{"sqrt": "square_root", "abs": "magnitude", "max": "larger", "min": "smaller", "tanh": "tanh_", "sigmoid": "sigmoid_"}
	name, called := functions[t.Op]
	if !called {
		name, called = t.Op, kernel.Functions[t.Op] != 2 || len(t.Op) > 1
	}
	double = !called
	for _, a := range t.Args {
		_, is := term(a, number)
		double = double && is
	}
	var args []string
	for _, a := range t.Args {
		if double {
			text, _ := term(a, number)
			args = append(args, text)
		} else {
			args = append(args, single(a, number))
		}
	}
	if called {
		return name + "(" + strings.Join(args, ", ") + ")", false
	}
	return "(" + args[0] + " " + name + " " + args[1] + ")", double
}
