package op

import "github.com/memplan/memplan/internal/array"

// Indices is an input that holds indices, or classes: what executes a job without data
// makes some.
type Indices struct {
	In      int
	Below   func(c *Call) int64 // what they are below
	Classes bool                // they are the target of a loss
}

// Indexing are indices of dimension d of input of.
func Indexing(in, of, d int) Indices {
	return Indices{In: in, Below: func(c *Call) int64 { return c.In[of].Dim(d) }}
}

// IndexingAlong are those of the dimension of input 0 that the arguments name, in input 1.
var IndexingAlong = []Indices{{In: 1, Below: func(c *Call) int64 {
	x := c.In[0]
	return x.Dim(array.Dim(c.Args.(interface{ Along() int }).Along(), x.Rank()))
}}}

// Classes are those of dimension d of input 0, in input 1.
func Classes(d int) []Indices {
	of := Indexing(1, 0, d)
	of.Classes = true
	return []Indices{of}
}
