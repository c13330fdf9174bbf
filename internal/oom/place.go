package oom

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// where says in words where a request is made.
func (r *Request) where() string {
	s := r.Phase
	if r.Step > 0 {
		s = fmt.Sprintf("step %d, %s", r.Step, r.Phase)
	}
	if r.Op != "" {
		s += ", " + r.Op
	}
	if r.Layer != "" {
		s += " in " + r.Layer
	}
	return s
}

// String says in words where a traceback ends.
func (p *Place) String() string {
	var parts []string
	if p.Phase != "" {
		parts = append(parts, p.Phase)
	}
	if p.Call != "" && p.Phase != "backward" { // there it is the engine
		parts = append(parts, p.Call)
	}
	s := strings.Join(parts, ", ")
	if p.Module != "" {
		s += " in " + p.Module
	}
	return s
}

// compared is what of a place was held against a request.
type compared struct {
	same   []string // what agrees
	other  []string // what does not, in sentences
	untold []string // what the log does not tell
}

// byName is what agrees where a module is called so, and what it lies in is not.
const byName = "name of the module"

// helpers are operators that others call to convert their inputs.
var helpers = []string{"_to_copy", "clone", "copy_", "contiguous"}

// meant is a place and what of a plan it may mean.
type meant struct {
	*Place
	modules   map[string]bool // nil: not told
	what      string          // that is told of modules
	operators []string        // nil: not told
}

// meant looks a place up in the plan; nil if a log has none.
func (p *Plan) meant(t *Place) *meant {
	if t == nil {
		return nil
	}
	m := &meant{Place: t, what: "module"}
	if t.called && (t.Module == "" || strings.Trim(t.Module, "*.") != "") {
		layers := p.layers()
		if m.modules = resolve(t.Module, layers); len(m.modules) == 0 { // a spec may call by other names what a module lies in
			parts := strings.Split(t.Module, ".")
			named := len(parts) - 1
			for named > 0 && strings.HasPrefix(parts[named], "*") { // any module has some name
				named--
			}
			m.what, m.modules = byName, resolve("**."+strings.Join(parts[named:], "."), layers)
		}
	}
	if t.Call != "" && t.Phase != "backward" {
		m.operators = p.Operators(t.Call)
	}
	return m
}

// compare holds a place against a request.
func (t *meant) compare(r *Request) *compared {
	c := &compared{}
	phase := r.Phase
	if phase == "eval" {
		phase = "forward"
	}
	switch {
	case t.Phase == "":
		c.untold = append(c.untold, "phase")
	case t.Phase == phase:
		c.same = append(c.same, "phase")
	default:
		c.other = append(c.other, fmt.Sprintf("phase: %s in the traceback, %s in the plan", t.Phase, r.Phase))
	}
	switch {
	case len(t.modules) == 0 && strings.Trim(t.Module, "*.") != "":
		c.untold = append(c.untold, "module of the plan")
	case len(t.modules) == 0:
		c.untold = append(c.untold, "module")
	case t.modules[r.Layer]:
		c.same = append(c.same, t.what)
	case r.Layer == "":
		c.other = append(c.other, fmt.Sprintf("module: %s in the traceback, none in the plan", t.Module))
	case t.Module == "":
		c.other = append(c.other, fmt.Sprintf("module: the model itself in the traceback, %s in the plan", r.Layer))
	default:
		c.other = append(c.other, fmt.Sprintf("module: %s in the traceback, %s in the plan", t.Module, r.Layer))
	}
	switch {
	case t.operators == nil || r.Op == "":
		c.untold = append(c.untold, "operator")
	case slices.Contains(t.operators, r.Op) || slices.Contains(helpers, r.Op):
		c.same = append(c.same, "operator")
	default:
		c.other = append(c.other, fmt.Sprintf("operator: %s in the traceback, %s in the plan", t.Call, r.Op))
	}
	return c
}

// layers are the modules of the plan in which memory is asked for.
func (p *Plan) layers() []string {
	seen := map[string]bool{}
	var out []string
	for i := range p.Requests {
		if l := p.Requests[i].Layer; !seen[l] {
			seen[l] = true
			out = append(out, l)
		}
	}
	return out
}

// step says how the steps that a log shows and the step of a request disagree; "" if
// they may be the same. A log may count from 0 or 1, before a step or after it, and
// microbatches; with an interval between its counts, the last is not far back.
func (p *Plan) step(f *Failure, r *Request) string {
	if r.Step == 0 || !f.counted {
		return ""
	}
	least, most := f.Progress, int64(-1)
	if f.every > 0 {
		most = f.Progress + f.every + 1
	}
	if p.Microbatches > 1 {
		least /= p.Microbatches
	}
	switch n := int64(r.Step); {
	case n < least:
		return fmt.Sprintf("step: the log shows step %d before, the plan fails in step %d", f.Progress, r.Step)
	case most >= 0 && n > most:
		return fmt.Sprintf("step: the log ends at step %d, the plan fails in step %d", f.Progress, r.Step)
	}
	return ""
}

// sameSize says whether a job failed where the plan fails, at a request of the same
// size.
func (p *Plan) sameSize(f *Failure, at *meant) []string {
	r := &p.Dies
	size := fmt.Sprintf("the size agrees, as the plan fails for %v, too, in %s", r.Bytes, r.where())
	step := p.step(f, r)
	c := &compared{}
	if at != nil {
		c = at.compare(r)
	}
	switch {
	case step != "":
		c.other = append(c.other, step)
	case r.Step > 1 && !f.counted:
		c.untold = append(c.untold, "step")
	}
	switch {
	case len(c.other) > 0:
		out := []string{size + "; the place does not:"}
		if at == nil {
			out[0] = size + "; the step does not:"
		}
		return append(out, c.other...)
	case at == nil:
		return []string{size + "; the log has no traceback that would tell whether it is the same request"}
	case len(c.same) == 0:
		return []string{fmt.Sprintf("%s; the traceback (line %d) tells nothing of where in the job that was", size, at.Line)}
	}
	s := fmt.Sprintf("as planned: the plan fails at the same request, %v in %s; the traceback agrees in %s", r.Bytes, r.where(), joined(c.same, "and"))
	if len(c.untold) > 0 {
		s += ", and tells no " + joined(c.untold, "or")
	}
	return []string{s}
}

// elsewhere says where the plan makes the request at which a traceback ends, unless
// it fails at it.
func (p *Plan) elsewhere(f *Failure, at *meant) []string {
	if at == nil || at.String() == "" {
		return nil
	}
	if !p.Fits && near(f.Tried, p.Dies.Bytes) && len(at.compare(&p.Dies).other) == 0 {
		return nil
	}
	var (
		first *Request
		by    string
	)
	there := map[tensor.Bytes]bool{}
	for i := range p.Requests {
		r := &p.Requests[i]
		c := at.compare(r)
		if len(c.other) > 0 || len(c.same) == 0 {
			continue
		}
		if near(f.Tried, r.Bytes) {
			if first = r; slices.Contains(c.same, byName) {
				by = ", by the name of the module alone"
			}
			break
		}
		there[r.Bytes] = true
	}
	switch {
	case first != nil:
		return []string{fmt.Sprintf("the plan makes the request of the traceback (%s), too%s: %v in %s", at, by, first.Bytes, first.where())}
	case len(there) == 0:
		return []string{fmt.Sprintf("the plan asks for nothing where the traceback ends (%s)", at)}
	}
	var sizes []tensor.Bytes
	for b := range there {
		sizes = append(sizes, b)
	}
	slices.Sort(sizes)
	return []string{fmt.Sprintf("where the traceback ends (%s) the plan asks for at most %v, not for %v: other sizes (batch, sequence length, precision)", at, sizes[len(sizes)-1], f.Tried)}
}

// joined joins names as a sentence does.
func joined(names []string, last string) string {
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " " + last + " " + names[n]
	}
	return names[0]
}
