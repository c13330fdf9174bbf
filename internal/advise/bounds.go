package advise

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// bounds tell of combinations that cannot fit without simulating them: not by a
// formula, but because others were simulated in which the same tensors live.
//
// A combination whose changes that reach weights are those of another has the
// other's weights, to the byte; and so for gradients, for optimizer state, and
// for what forward and backward passes hold beside. So the parts can be looked up
// apart. Weights live at all times and state from the second step on, and so a
// combination asks for no less than they and either what passes hold at the most,
// or gradients and what the optimizer's step takes. If that is more than is
// usable, it does not fit. Nothing is
// assumed of sizes: not that less is saved from a smaller batch, or that fewer
// bytes in tensors need fewer in segments.
type bounds struct {
	usable tensor.Bytes
	parts  map[string]tensor.Bytes // by measure and changes
	ratios map[ratio]float64       // of measures with a change and without it
}

type ratio struct {
	measure
	of *Option
}

// measure is a number of bytes that a job lives with in its second step or, if it
// runs out of memory before, in its first.
type measure struct {
	name  string
	reach Reach
}

// The measures.
var (
	weights   = measure{"weights", Weights}
	gradients = measure{"gradients", Gradients}
	state     = measure{"state", State}
	stepping  = measure{"stepping", Stepping}
	passing   = measure{"passing", Passing}

	firstGradients = measure{"first gradients", Gradients}
	firstState     = measure{"first state", State}
	firstPassing   = measure{"first passing", Passing}
)

func newBounds(usable tensor.Bytes) *bounds {
	return &bounds{usable: usable, parts: map[string]tensor.Bytes{}, ratios: map[ratio]float64{}}
}

// key names a measure of all combinations that have it in common.
func (m measure) key(c *combination) string {
	var b strings.Builder
	b.WriteString(m.name)
	for _, o := range c.options {
		if o.reach()&m.reach != 0 {
			b.WriteByte(' ')
			b.WriteString(o.ID())
		}
	}
	return b.String()
}

// least is what a combination needs at the least, as far as is known.
func (b *bounds) least(c *combination) tensor.Bytes {
	return sum(func(m measure) tensor.Bytes { return b.parts[m.key(c)] })
}

// sum is what a job needs at the least that has these measures.
func sum(of func(m measure) tensor.Bytes) tensor.Bytes {
	return of(weights) + max(of(firstPassing), of(firstGradients)+of(firstState), of(state)+max(of(passing), of(gradients)+of(stepping)))
}

// guess is least with guesses of what is not known: that each change does what it
// was first seen to do, and may do wonders where it was not seen.
func (b *bounds) guess(c *combination) tensor.Bytes {
	return sum(func(m measure) tensor.Bytes {
		if n, known := b.parts[m.key(c)]; known {
			return n
		}
		n := float64(b.parts[m.name])
		for _, o := range c.options {
			if o.reach()&m.reach != 0 {
				n *= b.ratios[ratio{m, o}]
			}
		}
		return tensor.Bytes(n)
	})
}

// hopeless reports whether a combination is known not to fit.
func (b *bounds) hopeless(c *combination) bool { return b.least(c) > b.usable }

// learn takes the measures of a job that was played. It returns the most that was
// in tensors at a time.
func (b *bounds) learn(c *combination, o *estimate.Outcome) (peak tensor.Bytes) {
	const beside = trace.Activations // everything else is counted as activations are
	var (
		tr       = o.Played.Trace
		all      tensor.Bytes
		live     [trace.NumCategories]tensor.Bytes
		scratch  tensor.Bytes // allocated while the optimizer steps
		sizes    = make([]tensor.Bytes, len(tr.Categories))
		stepped  = make([]bool, len(tr.Categories))
		least    = map[measure]tensor.Bytes{}
		most     = map[measure]tensor.Bytes{}
		note     = func(m measure, n tensor.Bytes) { most[m] = max(most[m], n) }
		noteLess = func(m measure, n tensor.Bytes) {
			if was, ok := least[m]; !ok || n < was {
				least[m] = n
			}
		}
	)
	for i := range tr.Events {
		e := &tr.Events[i]
		d := e.Bytes
		switch e.Kind {
		case trace.Alloc:
			sizes[e.ID], stepped[e.ID] = d, e.Phase == trace.Optimizer
		case trace.Free:
			d = -sizes[e.ID]
		default:
			continue
		}
		all += d
		peak = max(peak, all)
		switch cat := tr.Categories[e.ID]; cat {
		case trace.Parameters, trace.OptimizerState, trace.Gradients, trace.Workspace:
			live[cat] += d
		default:
			if stepped[e.ID] {
				scratch += d
			} else {
				live[beside] += d
			}
		}
		switch {
		case e.Step < 1 || e.Step > 2:
			continue
		case e.Step == 1 && e.Phase == trace.Optimizer:
			noteLess(firstGradients, live[trace.Gradients])
			note(firstState, live[trace.OptimizerState])
		case e.Step == 1:
			note(firstPassing, live[beside])
		case e.Phase == trace.Optimizer:
			noteLess(gradients, live[trace.Gradients])
			note(stepping, scratch)
		case e.Phase == trace.Forward || e.Phase == trace.Backward:
			note(passing, live[beside])
		}
		noteLess(weights, live[trace.Parameters])
		if e.Step == 2 {
			noteLess(state, live[trace.OptimizerState])
		}
	}
	for _, seen := range []map[measure]tensor.Bytes{least, most} {
		for m, n := range seen {
			k := m.key(c)
			b.parts[k] = max(b.parts[k], n)
			b.compare(m, c)
		}
	}
	return peak
}

// compare takes down what each change of a combination does to a measure, if it is known
// without that change.
func (b *bounds) compare(m measure, c *combination) {
	for i, o := range c.options {
		if o.reach()&m.reach == 0 {
			continue
		}
		rest := combination{options: slices.Delete(slices.Clone(c.options), i, i+1)}
		before, known := b.parts[m.key(&rest)]
		if _, done := b.ratios[ratio{m, o}]; known && before > 0 && !done {
			b.ratios[ratio{m, o}] = float64(b.parts[m.key(c)]) / float64(before)
		}
	}
}
