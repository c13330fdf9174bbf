package engine

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/trace"
)

// keepValue is kept.append(value) or total += value.
func (j *job) keepValue(fr *python.Frame, s *program.Stmt) {
	k := s.Keep
	t := j.Eval(fr, s.Value).T
	then := func(r *op.Op) {
		next := j.Do(r, r.Args, t)[0]
		j.Drop(t)
		t = next
	}
	if k.Detach {
		then(aten.Detach)
	}
	if k.CPU {
		then(autograd.ToHostRow)
		j.Mark(t, trace.Activations)
	}
	if k.Item { // a number of Python's
		j.Drop(t)
		return
	}
	v := j.kept[k.List]
	switch {
	case !k.Sum:
		if v.List == nil {
			v.List = python.NewList(nil)
		}
		v.List.Items = append(v.List.Items, python.Value{T: t})
	case v.T == nil: // 0.0 + value: the number takes the tensor's __radd__
		v.T = j.Do1(aten.Add, &aten.AddArgs{Other: op.Number{Float: true}}, t, nil)
		j.Drop(t)
	default:
		j.Drop(j.Do1(aten.AddInPlace, &aten.AddArgs{}, v.T, t))
		j.Drop(t)
	}
	j.kept[k.List] = v
}
