package advise

import (
	"cmp"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/estimate"
)

// MaxChanges is how many changes a proposal has at the most.
const MaxChanges = 5

// combination is a set of changes, at most one of a group.
type combination struct {
	options []*Option // in the order of the catalogue
	seconds float64   // of a step
	cost    float64
	clever  bool    // one of the changes is
	tight   bool    // it was simulated, and fits only after cached memory was given back
	size    float64 // events of a simulation, by those of the job as it is
	id      string
}

// keys are those of all options. Where two give the same key the same value, it
// is set once.
func (c *combination) keys() []estimate.Key {
	var out []estimate.Key
	for _, o := range c.options {
		for _, k := range o.Keys {
			if !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	}
	return out
}

// program names what the job of a combination allocates by: all options but those of the
// allocator.
func (c *combination) program() string {
	var ids []string
	for _, o := range c.options {
		if !o.ofAllocator() {
			ids = append(ids, o.ID())
		}
	}
	return strings.Join(ids, " ")
}

// has reports whether a combination has all changes of another.
func (c *combination) has(d *combination) bool {
	for _, o := range d.options {
		if !slices.Contains(c.options, o) {
			return false
		}
	}
	return true
}

// varies reports whether a combination is made of the same changes as another, with
// other values.
func (c *combination) varies(d *combination) bool {
	return slices.EqualFunc(c.options, d.options, func(x, y *Option) bool { return x.Change == y.Change })
}

// exceeds reports whether a combination makes all changes of another, with the same
// values or dearer ones.
func (c *combination) exceeds(d *combination) bool {
	for _, o := range d.options {
		if !slices.ContainsFunc(c.options, func(x *Option) bool { return x == o || x.Change == o.Change && x.cost > o.cost }) {
			return false
		}
	}
	return true
}

// combine makes a combination and its cost: by how many per cent a step is
// slower, and the prices of numerics and work. A job that becomes faster counts
// as one that does not become slower: advice is for what does not fit, and speed
// pays for no change of numbers.
func (b *Base) combine(options []*Option) *combination {
	w := b.work(options)
	c := &combination{options: options, seconds: w.Seconds(b.rate, b.Job.Machine.Env.SMs), size: w.Microbatches / b.Work.Microbatches}
	before := b.seconds(nil)
	if before > 0 {
		c.cost = max(0, 100*(c.seconds/before-1))
	}
	var ids []string
	for _, o := range options {
		c.cost += numericsPrice[o.Numerics()] + effortPrice[o.Change.Effort]
		c.clever = c.clever || o.Change.Clever
		ids = append(ids, o.ID())
	}
	c.id = strings.Join(ids, " ")
	return c
}

// combinations are all sets of up to MaxChanges changes of different groups, in
// the order of bySimplicity.
func (b *Base) combinations(groups [][]*Option) []*combination {
	var out []*combination
	var walk func(i int, chosen []*Option)
	walk = func(i int, chosen []*Option) {
		if len(chosen) > 0 && !idle(chosen) {
			out = append(out, b.combine(slices.Clone(chosen)))
		}
		if len(chosen) == MaxChanges {
			return
		}
		for ; i < len(groups); i++ {
			for _, o := range groups[i] {
				walk(i+1, append(chosen, o))
			}
		}
	}
	walk(0, nil)
	slices.SortFunc(out, bySimplicity)
	return out
}

// idle reports whether one of some changes does nothing to memory beside the others.
func idle(options []*Option) bool {
	return slices.ContainsFunc(options, func(x *Option) bool {
		return x.reach() != 0 && slices.ContainsFunc(options, func(y *Option) bool { return x != y && x.reach()&^y.Settles == 0 })
	})
}

// bySimplicity is the order of combinations: those that fit before those that are
// tight, what leaves the training as it is within the double time of a step before
// what does not, fewer changes before more, well-known ones before clever ones;
// then those that cost less, those with shorter steps, and by name.
func bySimplicity(x, y *combination) int {
	return cmp.Or(behind(x.tight, y.tight), behind(x.dear(), y.dear()), cmp.Compare(len(x.options), len(y.options)), behind(x.clever, y.clever),
		cmp.Compare(x.cost, y.cost), cmp.Compare(x.seconds, y.seconds), cmp.Compare(x.id, y.id))
}

// dear reports whether a combination costs what another training does.
func (c *combination) dear() bool { return c.cost >= numericsPrice[Different] }

// behind orders what is so behind what is not.
func behind(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}

// parts are the sets that a combination properly contains, but for the empty
// one, the smallest first.
func (b *Base) parts(c *combination) []*combination {
	var out []*combination
	for set := 1; set < 1<<len(c.options)-1; set++ {
		var chosen []*Option
		for i, o := range c.options {
			if set&(1<<i) != 0 {
				chosen = append(chosen, o)
			}
		}
		out = append(out, b.combine(chosen))
	}
	slices.SortStableFunc(out, func(x, y *combination) int { return cmp.Compare(len(x.options), len(y.options)) })
	return out
}
