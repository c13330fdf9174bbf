// Rows prints all rows of the table of layers; order_test.go builds it in the place
// of a package of the module.
package main

import (
	"fmt"

	"github.com/memplan/memplan/internal/graph/layers"
)

func main() {
	for _, n := range layers.Names() {
		l := layers.Lookup(n)
		fmt.Println(n, l.Sig, l.Forward, l.Inputs, l.Tuples, l.Is.Python, l.Is.Linear, l.Is.Conv, l.Is.Table, l.Is.Batch, l.Is.Running, l.Is.Whole, len(l.Is.Init), l.Build != nil)
	}
	fmt.Println(layers.MultiheadAttention.Is.Python, layers.Linear.Is.Python, layers.Convs[2].Is.Python, layers.Dropout.Is.Python)
}
