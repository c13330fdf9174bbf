package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/graph/hf"
	"github.com/memplan/memplan/internal/graph/techniques"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// checkpointed makes the call of an entry one through torch.utils.checkpoint if
// the entry asks for it.
func (f *fn) checkpointed(c *spec.Checkpoint, sc *scope, v value.Value) value.Value {
	el := f.u.el
	if c == nil || (c.When != nil && !el.evalBool(c.When, sc, "checkpoint")) || el.job.Inference != "" {
		return v
	}
	if len(c.Modules) > 0 {
		el.fail(c.Modules[0].At, "modules belongs to train.checkpoint; here the module is that of the entry")
	}
	if c.Every.Set {
		el.fail(c.Every.At, "every belongs to train.checkpoint")
	}
	x := *v.Expr
	x.Checkpoint = el.checkpointOf(c)
	el.plainKeywords(&x, c.At)
	if x.Kind == program.CallFun && c.Segments.Set {
		el.fail(c.Segments.At, "segments are made of a Sequential")
	}
	if x.Kind == program.CallMod && c.Segments.Set {
		el.checkSegments(c, f.u.class.Children[x.Child].Class, f.u.class.Children[x.Child].Path)
	}
	return value.Value{Expr: &x, Meta: v.Meta}
}

// plainKeywords refuses a checkpointed call with a keyword whose value is computed
// in the call: functools.partial would compute it before the other arguments.
func (el *elaborator) plainKeywords(x *program.Expr, at spec.Span) {
	for i, n := range x.Names {
		if k := x.Args[i].Kind; n != "" && k != program.Local && k != program.Item && k != program.Attr && k != program.Const {
			el.fail(at, "argument %s of a checkpointed call is computed in the call; give it a name before", n)
		}
	}
}

// checkpointOf reads what does not depend on the module.
func (el *elaborator) checkpointOf(c *spec.Checkpoint) *program.Checkpoint {
	out := &program.Checkpoint{Reentrant: c.Reentrant.V, Segments: c.Segments.V}
	for _, s := range c.Save {
		rows := op.Keepable(s.V)
		if rows == nil {
			el.errs.Unknown(s.At, "operator to keep", s.V, op.KeepableNames())
			panic(spec.Stop{})
		}
		for _, r := range rows {
			if !slices.Contains(out.Save, r) {
				out.Save = append(out.Save, r)
			}
		}
	}
	switch {
	case len(out.Save) > 0 && out.Reentrant:
		el.fail(c.Save[0].At, "save needs use_reentrant: false, PyTorch says")
	case len(out.Save) > 0 && out.Segments > 0:
		el.fail(c.Save[0].At, "checkpoint_sequential keeps no operators' results; save and segments exclude each other")
	}
	return out
}

// checkSegments refuses what checkpoint_sequential cannot cut.
func (el *elaborator) checkSegments(c *spec.Checkpoint, class *program.Class, path string) {
	if class.Layer != nn.Sequential {
		el.fail(c.Segments.At, "segments are made of a Sequential; %s is %s", path, class.Describe())
	}
	el.checkCount(c, len(class.Children))
}

func (el *elaborator) checkCount(c *spec.Checkpoint, modules int) {
	if c.Segments.V > int64(modules) {
		el.fail(c.Segments.At, "%d segments of %s", c.Segments.V, plural(modules, "module"))
	}
}

// checkpoints reports whether train.checkpoint asks for checkpoints.
func (el *elaborator) checkpoints() bool {
	c := el.spec.Train.Checkpoint
	return c != nil && el.job.Inference == "" && (c.When == nil || el.evalBool(c.When, el.spec.Env, "checkpoint"))
}

// checkpoint applies train.checkpoint to the models, which are elaborated: calls
// of the modules that it names go through torch.utils.checkpoint. Of modules
// that lie in one another the outermost counts. Without it, the configuration
// of a Hugging Face model may ask for the same (gradient_checkpointing).
func (el *elaborator) checkpoint() {
	c := el.spec.Train.Checkpoint
	all := el.checkpoints()
	switch {
	case !all && c != nil || el.job.Inference != "":
		return
	case !all:
		c = &spec.Checkpoint{}
	case c.Segments.Set && len(c.Modules) == 0 && c.When == nil:
		el.sequential(c)
		return
	}
	r := &checkpointer{el: el, spec: c, to: el.checkpointOf(c), made: map[string]*program.Class{}}
	var known []string
	for _, m := range el.job.Models {
		known = append(known, m.Root.ModulePaths()...)
	}
	given := techniques.Patterns(el.errs, c.Modules, "module", known)
	for i, m := range el.ms {
		patterns := given
		if len(c.Modules) == 0 {
			patterns = m.checkpointed()
			switch on, _ := m.spec.Env.Lookup(hf.GradientCheckpointing); {
			case !all && on != true:
				continue
			case patterns == nil:
				el.fail(c.At, "%s does not say which of its modules are checkpointed; name them with modules, such as {modules: [\"layers.*\"]}", m.name)
			}
		}
		if v, _ := m.spec.Env.Lookup("transformers"); v == "4.51" {
			el.notModelled = append(el.notModelled, note.Asked.New("train.checkpoint: how transformers 4.51 passes arguments to a layer that is checkpointed; it is planned as in 5.12").Of("train.checkpoint"))
		}
		r.find(el.job.Models[i].Root, "", i, patterns)
	}
	switch {
	case el.errs.Err() != nil: // a pattern that fits nothing
		panic(spec.Stop{})
	case len(r.found) == 0 && !all:
		return
	}
	r.choose()
	el.replaceRoots(func(i int, c *program.Class) *program.Class { return r.rewrite(c, "", i) })
	el.uniqueNames()
}

// replaceRoots replaces the class of each model, and that by which an evaluation
// calls the same modules for its own batches.
func (el *elaborator) replaceRoots(f func(i int, c *program.Class) *program.Class) {
	for i, m := range el.ms {
		m.class = f(i, el.job.Models[i].Root)
		el.job.Models[i].Root = m.class
		if e := el.job.Eval; e != nil && e.Models[m.name] != nil {
			e.Models[m.name] = f(i, e.Models[m.name])
		}
	}
}

// checkpointed are the modules that the model itself names.
func (m *model) checkpointed() program.Patterns {
	var out program.Patterns
	for _, s := range m.def.Checkpoint {
		out = append(out, s.V)
	}
	return out
}

// checkpointedSequential is the name of classes that are nn.Sequential but for
// the calls of their children.
const checkpointedSequential = "checkpointed_sequential"

// checkpointer rewrites the classes of models.
type checkpointer struct {
	el     *elaborator
	spec   *spec.Checkpoint
	to     *program.Checkpoint
	found  []checkpointPath
	chosen map[checkpointPath]bool
	made   map[string]*program.Class
}

// checkpointPath is a module of one of the models.
type checkpointPath struct {
	model int
	path  string
}

// find collects the outermost modules below c that patterns fit.
func (r *checkpointer) find(c *program.Class, path string, model int, patterns program.Patterns) {
	outermost(c, path, patterns, func(at string, child int, c *program.Class) {
		ch := &c.Children[child]
		if !c.IsBlock() && c.Layer != nn.Sequential {
			r.el.fail(r.spec.At, "%s is called by the code of %s, which cannot be changed; checkpoint a module around it", at, c.Describe())
		}
		if r.spec.Segments.Set {
			r.el.checkSegments(r.spec, ch.Class, at)
		}
		r.found = append(r.found, checkpointPath{model, at})
	})
}

// outermost calls f for the outermost modules below c that patterns fit, in the
// order of Module.named_modules, with the class that has the module and its place
// there. A pattern may name a list of modules.
func outermost(c *program.Class, path string, patterns program.Patterns, f func(at string, child int, c *program.Class)) {
	for _, i := range c.Registered() {
		ch := &c.Children[i]
		at := program.Join(path, ch.Path)
		fits := false
		for n := len(path) + 1; n <= len(at); n++ {
			fits = fits || (n == len(at) || at[n] == '.') && patterns.Fits(at[:n])
		}
		if fits {
			f(at, i, c)
		} else {
			outermost(ch.Class, at, patterns, f)
		}
	}
}

// choose keeps every n-th.
func (r *checkpointer) choose() {
	r.chosen = map[checkpointPath]bool{}
	n := max(int(r.spec.Every.V), 1)
	if n > len(r.found) {
		r.el.fail(r.spec.Every.At, "every %d of %s leaves none", n, plural(len(r.found), "module"))
	}
	for i := n - 1; i < len(r.found); i += n {
		r.chosen[r.found[i]] = true
	}
}

// rewrite returns the class of the module at path with its calls changed; c
// itself if there is nothing to change. Modules of one class in which the same
// is chosen share the result.
func (r *checkpointer) rewrite(c *program.Class, path string, model int) *program.Class {
	key := fmt.Sprintf("%p", c)
	for _, f := range r.found {
		if rest, ok := strings.CutPrefix(f.path, path+"."); f.model == model && r.chosen[f] && (ok || path == "") {
			if path == "" {
				rest = f.path
			}
			key += " " + rest
		}
	}
	if !strings.Contains(key, " ") {
		return c
	}
	if out := r.made[key]; out != nil {
		return out
	}
	out := *c
	r.made[key] = &out
	out.Children = slices.Clone(c.Children)
	calls := map[int]bool{}
	for i := range out.Children {
		ch := &out.Children[i]
		at := program.Join(path, ch.Path)
		if r.chosen[checkpointPath{model, at}] {
			calls[i] = true
		} else {
			ch.Class = r.rewrite(ch.Class, at, model)
		}
	}
	if len(calls) > 0 {
		if out.Layer == nn.Sequential { // a class of its own
			out.Name = r.el.className(checkpointedSequential)
		}
		for _, x := range out.CheckpointCalls(r.to, calls) {
			r.el.plainKeywords(x, r.spec.At)
		}
	}
	return &out
}

// uniqueNames gives classes that were rewritten in several ways names of their
// own.
func (el *elaborator) uniqueNames() {
	seen := map[*program.Class]bool{}
	names := map[string]*program.Class{}
	for _, m := range el.job.Models {
		m.Root.Walk(func(_ string, c *program.Class) {
			if seen[c] || c.Name == "" {
				return
			}
			seen[c] = true
			for names[c.Name] != nil {
				c.Name = el.className(c.Name)
			}
			names[c.Name] = c
		})
	}
}

// sequential applies checkpoint_sequential to the model's only Sequential, or to
// its layers if they are a chain.
func (el *elaborator) sequential(c *spec.Checkpoint) {
	el.replaceRoots(func(i int, root *program.Class) *program.Class {
		to, out := el.checkpointOf(c), *root
		f := root.Forward
		if chain := f.Chain(); len(chain) > 1 {
			el.checkCount(c, len(chain))
			to.Chain = chain
			first := *f.Body[0].Value
			first.Checkpoint = to
			g := *f
			g.Body = []program.Stmt{{Kind: program.Return, Value: &first, Line: f.Body[0].Line}}
			out.Forward = &g
			return &out
		}
		var lists []int
		for k, ch := range root.Children {
			if ch.Class.Layer == nn.Sequential {
				lists = append(lists, k)
			}
		}
		if len(lists) != 1 {
			el.fail(c.Segments.At, "segments are made of a Sequential; %s has %d and its layers are no chain; name one with modules", el.ms[i].name, len(lists))
		}
		el.checkSegments(c, root.Children[lists[0]].Class, root.Children[lists[0]].Path)
		out.CheckpointCalls(to, map[int]bool{lists[0]: true})
		return &out
	})
}
