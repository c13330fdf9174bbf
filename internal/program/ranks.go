package program

import (
	"fmt"
	"reflect"
	"slices"
)

// OfRank is the program of another rank of the pipeline: its models are the stages of that
// rank, and all else is shared.
func (j *Job) OfRank(rank int64) *Job {
	out, pl := *j, *j.Parallel.Pipeline
	pl.Rank = rank
	out.Parallel.Pipeline = &pl
	out.Models = nil
	var names []string
	for k, stage := range pl.Own() {
		m := *pl.Whole
		m.Root = pl.Stages[stage].Class
		if pl.Loops() {
			m.Name = fmt.Sprintf("part%d", k)
		}
		out.Models, names = append(out.Models, &m), append(names, m.Name)
	}
	out.Optimizers = slices.Clone(j.Optimizers)
	for i, o := range out.Optimizers {
		of := *o
		of.Models = names
		out.Optimizers[i] = &of
	}
	return &out
}

// DistinctRanks tells of each rank of a pipeline which one, itself or one before it, does the same: has
// alike stages, with parameters that are trained and stepped alike, and takes them through the same
// actions. What the stages take must be known.
func (j *Job) DistinctRanks() []int64 {
	n := j.Parallel.Pipeline.Ranks
	out := make([]int64, n)
	ranks, actions := make([]*Job, n), make([][]Action, n)
	for r := range n {
		ranks[r] = j.OfRank(r)
		pl := ranks[r].Parallel.Pipeline
		actions[r] = pl.Actions()
		for i := range actions[r] { // numbered among the stages of the rank
			actions[r][i].Stage /= int(pl.Ranks)
		}
	}
	var distinct []int64
	for r := range n {
		like := func(d int64) bool { return slices.Equal(actions[r], actions[d]) && ranks[r].alikeStages(ranks[d]) }
		if k := slices.IndexFunc(distinct, like); k >= 0 {
			out[r] = distinct[k]
			continue
		}
		out[r] = r
		distinct = append(distinct, r)
	}
	return out
}

// alikeStages reports whether the stages of two ranks do the same.
func (j *Job) alikeStages(o *Job) bool {
	p, q := j.Parallel.Pipeline, o.Parallel.Pipeline
	a, b := p.Own(), q.Own()
	if len(a) != len(b) {
		return false
	}
	last := len(p.Stages) - 1
	for k := range a {
		s, t := &p.Stages[a[k]], &q.Stages[b[k]]
		if (a[k] == 0) != (b[k] == 0) || (a[k] == last) != (b[k] == last) || !slices.Equal(s.Takes, t.Takes) || !slices.Equal(s.Inputs, t.Inputs) ||
			a[k] < last && !slices.Equal(p.Stages[a[k]+1].Takes, q.Stages[b[k]+1].Takes) || !alikeParts(s.Class, t.Class) || !slices.Equal(j.roles(k), o.roles(k)) || !slices.Equal(j.sharded(k), o.sharded(k)) {
			return false
		}
	}
	return true
}

// role is what is done with a parameter.
type role struct {
	Frozen bool
	Groups string // of which groups of the optimizers it is one
}

// roles are those of the parameters of the k-th stage of a rank, in their order.
func (j *Job) roles(k int) []role {
	m := j.Models[k]
	var out []role
	for _, path := range m.Root.ParamPaths() {
		r := role{Frozen: m.Freezes(path)}
		for _, o := range j.Optimizers {
			r.Groups += fmt.Sprint(o.Group(path), " ")
		}
		out = append(out, r)
	}
	return out
}

// sharded are the calls of fully_shard in the k-th stage of a rank, by the numbers of the modules.
func (j *Job) sharded(k int) []string {
	if j.Parallel.FSDP == nil {
		return nil
	}
	root, number := j.Models[k].Root, map[string]int{}
	root.Walk(func(path string, _ *Class) { number[path] = len(number) })
	var out []string
	for _, u := range j.Parallel.FSDP.Of(root) {
		text := fmt.Sprint(u.Reshard)
		for _, m := range u.Modules {
			text += fmt.Sprint(" ", number[m])
		}
		out = append(out, text)
	}
	return out
}

// alikeParts reports whether two parts of one class do the same: modules of the same classes, wherever
// they lie, in the same statements, on whatever line.
func alikeParts(a, b *Class) bool {
	if len(a.Children) != len(b.Children) || len(a.Methods) != len(b.Methods) || !alikeFuncs(a.Forward, b.Forward) {
		return false
	}
	for i := range a.Children {
		x, y := &a.Children[i], &b.Children[i]
		if x.Class != y.Class && !reflect.DeepEqual(x.Class, y.Class) || len(x.Ties) > 0 || len(y.Ties) > 0 {
			return false
		}
	}
	return reflect.DeepEqual(a.Methods, b.Methods) && reflect.DeepEqual(a.Params, b.Params) && reflect.DeepEqual(a.Buffers, b.Buffers) &&
		reflect.DeepEqual(a.Attrs, b.Attrs) && reflect.DeepEqual(a.Applied, b.Applied)
}

// alikeFuncs reports whether two functions say the same but for names and lines. Those that name
// attributes of modules are taken to differ.
func alikeFuncs(f, g *Func) bool {
	if len(f.Slots) != len(g.Slots) || len(f.Body) != len(g.Body) {
		return false
	}
	named := false
	f.Exprs(func(e *Expr) { named = named || e.Kind == Attr })
	x, y := *f, *g
	x.Slots, x.Body, y.Slots, y.Body = nil, nil, nil, nil
	if named || !reflect.DeepEqual(x, y) {
		return false
	}
	for i := range f.Body {
		s, t := f.Body[i], g.Body[i]
		s.Line, t.Line = 0, 0
		if s.Kind == SetAttr || !reflect.DeepEqual(s, t) {
			return false
		}
	}
	return true
}
