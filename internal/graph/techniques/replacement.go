package techniques

import (
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// replacement is the class that takes another one's place while it is made.
type replacement struct {
	*module.Builder
	batch int64
}

// input is x, the argument of forward, with a size that its layers
// can take.
func (b *replacement) input(size ...int64) value.Value {
	t := &op.Tensor{Layout: tensor.Contiguous(tensor.D(append([]int64{b.batch}, size...)...)), DType: b.Env.Computed(b.DType())}
	return value.Value{Expr: &program.Expr{Kind: program.Local, Slot: 0}, Meta: value.Tensor(t)}
}

// once is the class that build makes, or made for an equal key before: classes are shared by
// the layers that are alike.
func (j *Job) once(key any, build func() *program.Class) *program.Class {
	c := j.made[key]
	if c == nil {
		c = build()
		if j.made == nil {
			j.made = map[any]*program.Class{}
		}
		j.made[key] = c
	}
	return c
}

// replacing reports what goes wrong while the class that takes another one's
// place is built; it is deferred.
func (j *Job) replacing(at spec.Span, what string) {
	if r := recover(); r != nil {
		e, ok := r.(*module.Mistake)
		if !ok {
			panic(r)
		}
		j.fail(at, "%s: %s", what, e.Msg)
	}
}
