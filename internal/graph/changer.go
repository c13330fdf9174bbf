package graph

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// Changer puts other classes in the place of a model's layers.
type Changer struct {
	Errs  *spec.Errors // of the spec that asks for it
	Env   *Env         // of the classes that are made
	Batch int64
}

// replacement is the class that takes another one's place while it is made.
type replacement struct {
	*builder
	batch int64
}

// input is x, the argument of forward, with a size that its layers
// can take.
func (b *replacement) input(size ...int64) val {
	t := &op.Tensor{Layout: tensor.Contiguous(tensor.D(append([]int64{b.batch}, size...)...)), DType: b.dtype()}
	return val{&program.Expr{Kind: program.Local, Slot: 0}, tensorMeta(t)}
}

// replacing reports what goes wrong while the class that takes another one's
// place is built; it is deferred.
func (c *Changer) replacing(at spec.Span, what string) {
	if r := recover(); r != nil {
		e, ok := r.(*buildError)
		if !ok {
			panic(r)
		}
		c.Errs.Failf(at, "%s: %s", what, e.msg)
	}
}
