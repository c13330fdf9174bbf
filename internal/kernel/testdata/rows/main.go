// Rows prints all kernels of the table; order_test.go builds it in the place of a
// package of the module.
package main

import (
	"fmt"

	"github.com/memplan/memplan/internal/kernel"
)

func main() {
	for _, k := range kernel.All() {
		fmt.Println(k.Index(), k.Name, k.Kind, k.Tensors, k.Outputs, k.Ints, k.Floats, len(k.Formula), kernel.Lookup(k.Name) == k)
	}
}
