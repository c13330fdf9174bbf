// Rows prints all rows of the table of operators; order_test.go builds it in the
// place of a package of the module.
package main

import (
	"fmt"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
)

func name(r *op.Op) string {
	if r == nil {
		return "-"
	}
	return r.Name
}

// computed says what of its values a row computes itself.
func computed(r *op.Op) string {
	if r.Eval == nil {
		return "-"
	}
	return fmt.Sprint(r.Eval.Forward != nil, r.Eval.Backward != nil, r.Eval.InParts, r.Eval.Over, r.Eval.Single, r.Eval.ByFormula != nil)
}

// indexed says which inputs hold indices.
func indexed(r *op.Op) string {
	var out []string
	for _, i := range r.Indices {
		out = append(out, fmt.Sprint(i.In, i.Below != nil, i.Classes))
	}
	return fmt.Sprint(out)
}

func main() {
	for _, r := range aten.Rows() {
		reflected, arg := aten.Reflected(r)
		fmt.Println(r.Name, r.Sig, fmt.Sprintf("%T", r.Args), r.Cast, r.CastList, r.Composite, r.List, r.InPlace, r.Copies, r.Save, r.Last, r.Node, r.NoGrad, r.NotModelled,
			r.Source, r.Run != nil, r.View != nil, r.Grad != nil, r.Takes != nil, r.Flops != nil, computed(r),
			r.Below != nil, r.Rows != nil, indexed(r), r.Unfused != nil, r.Refused,
			name(r.Of), name(r.InPlaceForm()), name(reflected), arg)
	}
	for _, n := range aten.Names() {
		fmt.Println(n, aten.Lookup(n).Op.Name, aten.Lookup(n).Sig)
	}
	for _, n := range aten.KeepableNames() {
		for _, r := range aten.Keepable(n) {
			fmt.Println(n, r.Name)
		}
	}
}
