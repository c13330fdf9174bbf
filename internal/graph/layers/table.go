package layers

import (
	"sort"

	"github.com/memplan/memplan/internal/graph/module"
)

var table = map[string]*module.Layer{}

// define adds a row to the table and returns it.
func define(l module.Layer) *module.Layer {
	p := module.New(l)
	if table[p.Name()] != nil {
		panic("layers: " + p.Name() + " is defined twice")
	}
	table[p.Name()] = p
	return p
}

// Names lists the layers that a spec may use, sorted.
func Names() []string {
	names := make([]string, 0, len(table))
	for n := range table {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Lookup returns the layer of that name, or nil.
func Lookup(name string) *module.Layer { return table[name] }
