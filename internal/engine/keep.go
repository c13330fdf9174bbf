package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/trace"
)

// keepValue is kept.append(value) or total += value.
func (j *job) keepValue(fr *frame, s *program.Stmt) {
	k := s.Keep
	t := j.eval(fr, s.Value).t
	then := func(r *op.Op) {
		next := j.Do(r, r.Args, t)[0]
		j.Drop(t)
		t = next
	}
	if k.Detach {
		then(op.Detach)
	}
	if k.CPU {
		then(toHostRow)
		j.mark(t, trace.Activations)
	}
	if k.Item { // a number of Python's
		j.Drop(t)
		return
	}
	v := j.kept[k.List]
	switch {
	case !k.Sum:
		if v.list == nil {
			v.list = &list{refs: 1}
		}
		v.list.items = append(v.list.items, value{t: t})
	case v.t == nil: // 0.0 + value: the number takes the tensor's __radd__
		v.t = j.do1(op.Add, &op.AddArgs{Other: op.Number{Float: true}}, t, nil)
		j.Drop(t)
	default:
		j.Drop(j.do1(op.AddInPlace, &op.AddArgs{}, v.t, t))
		j.Drop(t)
	}
	j.kept[k.List] = v
}
