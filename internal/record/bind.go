package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// call is one operator of a recording with its arguments by name.
type call struct {
	*Line
	schema  *Schema
	tensors map[string]any // Ref, or a list of them; nil where None was given
	order   []string       // the names of arguments that take tensors
	values  aten.Values
}

// bind gives the arguments of a call their names.
func (r *Recording) bind(l *Line) *call {
	c := &call{Line: l, schema: r.Schemas[l.N], tensors: map[string]any{}, values: aten.Values{}}
	for i, a := range c.schema.Args {
		v, given := l.Kwargs[a.Name]
		if i < len(l.Args) {
			v, given = l.Args[i], true
		}
		if a.Tensor && (v == nil || tensors(v)) {
			c.tensors[a.Name] = v
			c.order = append(c.order, a.Name)
			continue
		}
		if given && v != nil {
			c.values[a.Name] = plainValue(v)
		}
	}
	if t := first(l.Outs); t != nil {
		c.values[aten.ResultSize] = r.Metas[t.Meta].Layout.Size.Slice()
	}
	return c
}

// indexing says which row indexes as a call of aten::index does, in place of its overload:
// with one index, with two in front, or with a mask; "" with others.
func (c *call) indexing(r *Recording) string {
	list := refs(c.tensors["indices"])
	at := []int{}
	for i, t := range list {
		if t == nil {
			continue
		}
		switch d := r.Metas[t.Meta].DType; {
		case d == tensor.Bool && len(list) == 1:
			return "mask"
		case d != tensor.Int64:
			return ""
		}
		at = append(at, i)
	}
	switch {
	case len(at) == 1:
		c.values["dim"] = int64(at[0])
		c.tensors["indices"] = []any{*list[at[0]]}
		return "one"
	case len(at) == 2 && at[0] == 0 && at[1] == 1:
		return "pair"
	}
	return ""
}

// tensors reports whether a value is a tensor or a list with one, or a list without
// anything.
func tensors(v any) bool {
	switch v := v.(type) {
	case Ref:
		return true
	case []any:
		if len(v) == 0 {
			return true
		}
		for _, x := range v {
			if _, ok := x.(Ref); ok {
				return true
			}
		}
	}
	return false
}

// plainValue makes of lists of integers what rows take, and of named types the types.
func plainValue(v any) any {
	switch v := v.(type) {
	case []any:
		ints := make([]int64, 0, len(v))
		for _, x := range v {
			i, ok := x.(int64)
			if !ok {
				return v
			}
			ints = append(ints, i)
		}
		return ints
	case Named:
		if v.Kind == "dtype" {
			if d, err := tensor.ParseDType(v.Name); err == nil {
				return d
			}
		}
		return v.Name
	}
	return v
}

// stored are the tensors of a value that lie in a storage.
func stored(v any) []*Ref {
	return slices.DeleteFunc(refs(v), func(t *Ref) bool { return t == nil || t.Storage == Nowhere })
}

// refs are the tensors of a value, nil for None.
func refs(v any) []*Ref {
	switch v := v.(type) {
	case Ref:
		return []*Ref{&v}
	case []any:
		out := make([]*Ref, 0, len(v))
		for _, x := range v {
			out = append(out, refs(x)...)
		}
		return out
	case nil:
		return []*Ref{nil}
	}
	return nil
}

// inputs are the tensors that a Dispatch names, in its order.
func (c *call) inputs(named string) ([]*Ref, error) {
	var out []*Ref
	for _, n := range strings.Fields(named) {
		if n == "-" {
			out = append(out, nil)
			continue
		}
		v, ok := c.tensors[n]
		if _, number := c.values[n]; !ok && !number {
			return nil, fmt.Errorf("there is no tensor %s", n)
		}
		out = append(out, refs(v)...)
	}
	return out, nil
}

// args makes the row's arguments.
func (c *call) args(d *aten.Dispatch) (a any, err error) {
	if d.Args != nil {
		return d.Args(c.values), nil
	}
	defer func() {
		if r := recover(); r != nil { // a field of a row takes no such value
			err = fmt.Errorf("arguments that the row does not take")
		}
	}()
	return op.BindArgs(d.Row.Args, c.values), nil
}

// move puts copies on the device in place of indices, the last inputs, that are in host
// memory: once they have the shape of all (TensorAdvancedIndexing.cpp: make_info).
func (p *player) move(c *call, in []*op.Tensor) {
	if c.schema.Name != "index" {
		return
	}
	indices := refs(c.tensors["indices"])
	last := in[max(0, len(in)-len(indices)):]
	var size tensor.Dims
	for _, t := range last {
		if t != nil {
			if both, err := tensor.Broadcast(size, t.Size); err == nil {
				size = both
			}
		}
	}
	for i, t := range last {
		if t == nil || t.DType != tensor.Int64 || indices[i].Storage != Nowhere && p.r.Storages[indices[i].Storage].CUDA {
			continue
		}
		l := tensor.Contiguous(size)
		last[i] = p.p.NewIn(tensor.Bytes(8*l.Numel()), l, tensor.Int64)
		p.p.Drop(t)
	}
}
