package op

import "github.com/memplan/memplan/internal/kernel"

// evalView is a view that says nothing else.
var evalView = &Eval{Backward: ViewGrad}

// ViewGrad is the derivative of views that do not overlap: it puts the gradients where
// they were, among zeros.
func ViewGrad(m Machine, b *Back) error {
	y := m.Wanted(b, 0)
	if y == nil {
		return nil
	}
	if err := m.Apply(kernel.Fill, y, nil, 0); err != nil {
		return err
	}
	places := b.Op.View(&Call{Exec: b.Exec, Op: b.Op, Args: b.Args, In: []*Tensor{y}})
	for i, g := range b.Grads {
		if g == nil {
			continue
		}
		from, err := Broadcasted(m, g, places[i].Size.Slice()...)
		if err != nil {
			return err
		}
		if err := m.Launch(kernel.Copy, []kernel.Tensor{m.At(y, places[i]), from}, nil); err != nil {
			return err
		}
	}
	return nil
}
