package techniques

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/hf"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// PlainKeywords refuses a checkpointed call with a keyword whose value is computed
// in the call: functools.partial would compute it before the other arguments.
func PlainKeywords(errs *spec.Errors, x *program.Expr, at spec.Span) {
	for i, n := range x.Names {
		if k := x.Args[i].Kind; n != "" && k != program.Local && k != program.Item && k != program.Attr && k != program.Const {
			errs.Failf(at, "argument %s of a checkpointed call is computed in the call; give it a name before", n)
		}
	}
}

// CheckpointOf reads what does not depend on the module.
func CheckpointOf(errs *spec.Errors, c *spec.Checkpoint) *program.Checkpoint {
	out := &program.Checkpoint{Reentrant: c.Reentrant.V, Segments: c.Segments.V}
	out.Save, out.Alternate = keepable(errs, c.Save), keepable(errs, c.Alternate)
	for i, s := range c.Alternate {
		for _, r := range keepable(errs, c.Alternate[i:i+1]) {
			if !slices.Contains(out.Save, r) {
				errs.Failf(s.At, "alternate: results of %s are not kept; name it in save, too", s.V)
			}
		}
	}
	switch {
	case len(out.Save) > 0 && out.Reentrant:
		errs.Failf(c.Save[0].At, "save needs use_reentrant: false, PyTorch says")
	case len(out.Save) > 0 && out.Segments > 0:
		errs.Failf(c.Save[0].At, "checkpoint_sequential keeps no operators' results; save and segments exclude each other")
	}
	return out
}

// keepable are the operators of a list of words.
func keepable(errs *spec.Errors, words []spec.String) []*op.Op {
	var out []*op.Op
	for _, s := range words {
		rows := aten.Keepable(s.V)
		if rows == nil {
			errs.Unknown(s.At, "operator to keep", s.V, aten.KeepableNames())
			panic(spec.Stop{})
		}
		for _, r := range rows {
			if !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// CheckSegments refuses what checkpoint_sequential cannot cut.
func CheckSegments(errs *spec.Errors, c *spec.Checkpoint, class *program.Class, path string) {
	if class.Layer != nn.Sequential {
		errs.Failf(c.Segments.At, "segments are made of a Sequential; %s is %s", path, class.Describe())
	}
	checkCount(errs, c, len(class.Children))
}

func checkCount(errs *spec.Errors, c *spec.Checkpoint, modules int) {
	if c.Segments.V > int64(modules) {
		errs.Failf(c.Segments.At, "segments must be at most %d, the number of modules, not %d", modules, c.Segments.V)
	}
}

// Checkpoint applies train.checkpoint to the models, which are elaborated: calls
// of the modules that it names go through torch.utils.checkpoint. Of modules
// that lie in one another the outermost counts. Without it, the configuration
// of a Hugging Face model may ask for the same (gradient_checkpointing).
func (j *Job) Checkpoint() {
	c := j.Spec.Train.Checkpoint
	all := j.Checkpoints()
	switch {
	case !all && c != nil || j.Job.Inference != "":
		return
	case !all:
		c = &spec.Checkpoint{}
	case c.Segments.Set && len(c.Modules) == 0 && c.When == nil:
		j.sequential(c)
		return
	}
	r := &checkpointer{j: j, spec: c, to: CheckpointOf(j.Spec.Errs, c), made: map[string]*program.Class{}}
	var known []string
	for _, m := range j.Job.Models {
		known = append(known, m.Root.ModulePaths()...)
	}
	given := Patterns(j.Spec.Errs, c.Modules, "module", known)
	for i, m := range j.Models {
		if m.Type != "" && j.Job.Models[i].Eval {
			continue // GradientCheckpointingLayer checkpoints in training mode alone
		}
		patterns := given
		if len(c.Modules) == 0 {
			patterns = m.Checkpoint
			switch on, _ := m.Params.Lookup(hf.GradientCheckpointing); {
			case !all && on != true:
				continue
			case patterns == nil:
				j.fail(c.At, "%s does not say which of its modules are checkpointed; name them with modules, such as {modules: [\"layers.*\"]}", m.Name)
			}
		}
		if v, _ := m.Params.Lookup("transformers"); v == "4.51" {
			*j.NotModelled = append(*j.NotModelled, note.Asked.New("train.checkpoint: how transformers 4.51 passes arguments to a layer that is checkpointed; it is planned as in 5.12").Of("train.checkpoint"))
		}
		r.find(j.Job.Models[i].Root, "", i, patterns)
	}
	if c.Trained {
		r.leaveFrozen()
	}
	switch {
	case j.Spec.Errs.Err() != nil: // a pattern that fits nothing
		panic(spec.Stop{})
	case len(r.found) == 0 && !all:
		return
	}
	r.choose()
	j.replaceRoots(func(i int, c *program.Class) *program.Class { return r.rewrite(c, "", i) })
	j.uniqueNames()
}

// replaceRoots replaces the class of each model, and that by which an evaluation
// calls the same modules for its own batches.
func (j *Job) replaceRoots(f func(i int, c *program.Class) *program.Class) {
	for i, m := range j.Models {
		j.Job.Models[i].Root = f(i, j.Job.Models[i].Root)
		if j.Job.Eval == nil {
			continue
		}
		for _, e := range j.Job.Eval.Sizes() {
			if e.Models[m.Name] != nil {
				e.Models[m.Name] = f(i, e.Models[m.Name])
			}
		}
	}
}

// CheckpointedSequential is the name of classes that are nn.Sequential but for
// the calls of their children.
const CheckpointedSequential = "checkpointed_sequential"

// checkpointer rewrites the classes of models.
type checkpointer struct {
	j      *Job
	spec   *spec.Checkpoint
	to     *program.Checkpoint
	found  []checkpointPath
	frozen map[checkpointPath]bool // of those that are found
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
			r.j.fail(r.spec.At, "%s is called by the code of %s, which cannot be changed; checkpoint a module around it", at, c.Describe())
		}
		if r.spec.Segments.Set {
			CheckSegments(r.j.Spec.Errs, r.spec, ch.Class, at)
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
	if len(r.found) == 0 {
		r.j.fail(r.spec.At, "there is no module to checkpoint: the model has none of those that its checkpoint names")
	} else if n > len(r.found) {
		r.j.fail(r.spec.Every.At, "every: %d selects none of %s; it must be at most their number", n, spec.Plural(len(r.found), "module"))
	}
	for i := n - 1; i < len(r.found); i += n {
		r.chosen[r.found[i]] = !r.frozen[r.found[i]]
	}
}

// leaveFrozen finds the modules of which no parameter is trained.
func (r *checkpointer) leaveFrozen() {
	r.frozen = map[checkpointPath]bool{}
	for _, f := range r.found {
		m := r.j.Job.Models[f.model]
		in := func(path string) bool { return path == f.path || strings.HasPrefix(path, f.path+".") }
		trains := func(p program.Place) bool { return in(p.Path) }
		if a := m.Adapters; a != nil {
			r.frozen[f] = a.Bias != "all" && !slices.ContainsFunc(a.Layers, trains) && !slices.ContainsFunc(a.Saved, trains)
		} else {
			r.frozen[f] = !slices.ContainsFunc(m.Root.ParamPaths(), func(path string) bool { return in(path) && !m.Freezes(path) })
		}
	}
}

// rewrite returns the class of the module at path with its calls changed; c
// itself if there is nothing to change. Modules of one class in which the same
// is chosen share the result.
func (r *checkpointer) rewrite(c *program.Class, path string, model int) *program.Class {
	key := fmt.Sprintf("%p", c)
	for _, f := range r.found {
		if rest, ok := strings.CutPrefix(f.path, path+"."); f.model == model && (r.chosen[f] || r.spec.Trained) && (ok || path == "") {
			if path == "" {
				rest = f.path
			}
			key += fmt.Sprint(" ", rest, r.chosen[f])
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
	calls, has := map[int]bool{}, false
	for i := range out.Children {
		ch := &out.Children[i]
		f := checkpointPath{model, program.Join(path, ch.Path)}
		_, frozen := r.frozen[f]
		has = has || frozen
		if r.chosen[f] {
			calls[i] = true
		} else {
			ch.Class = r.rewrite(ch.Class, f.path, model)
		}
	}
	if len(calls) > 0 || has {
		if out.Layer == nn.Sequential { // a class of its own
			out.Name = r.j.ClassName(CheckpointedSequential)
		}
		changed := out.CheckpointCalls(r.to, calls)
		for _, x := range changed {
			PlainKeywords(r.j.Spec.Errs, x, r.spec.At)
		}
		if m := r.j.Job.Models[model]; has && (m.Adapters == nil || m.Quantized != nil) { // else PEFT has the embeddings' results require grad
			inputsRequireGrad(&out, changed)
		}
	}
	return &out
}

// inputsRequireGrad has calls make their first arguments require grad, where a class, of which
// CheckpointCalls has made the functions, has a statement that does so for all of them.
func inputsRequireGrad(c *program.Class, calls []*program.Expr) {
	var asks *program.Expr
	c.Forward.Body = slices.DeleteFunc(c.Forward.Body, func(s program.Stmt) bool {
		x := s.Value
		if x == nil || x.Kind != program.CallOp || x.Row != aten.RequiresGrad || len(s.Targets) != 1 || x.Args[0].Kind != program.Local || x.Args[0].Slot != s.Targets[0] {
			return false
		}
		asks = x
		return true
	})
	for _, x := range calls {
		if asks != nil && len(x.Args) > 0 && (x.Names == nil || x.Names[0] == "") {
			arg := *asks
			arg.Args = []*program.Expr{x.Args[0]}
			x.Args[0] = &arg
		}
	}
}

// uniqueNames gives classes that were rewritten in several ways names of their
// own.
func (j *Job) uniqueNames() {
	seen := map[*program.Class]bool{}
	names := map[string]*program.Class{}
	for _, m := range j.Job.Models {
		m.Root.Walk(func(_ string, c *program.Class) {
			if seen[c] || c.Name == "" {
				return
			}
			seen[c] = true
			for names[c.Name] != nil {
				c.Name = j.ClassName(c.Name)
			}
			names[c.Name] = c
		})
	}
}

// sequential applies checkpoint_sequential to the model's only Sequential, or to
// its layers if they are a chain.
func (j *Job) sequential(c *spec.Checkpoint) {
	j.replaceRoots(func(i int, root *program.Class) *program.Class {
		to, out := CheckpointOf(j.Spec.Errs, c), *root
		f := root.Forward
		if chain := f.Chain(); len(chain) > 1 {
			checkCount(j.Spec.Errs, c, len(chain))
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
			j.fail(c.Segments.At, "segments are made of a Sequential; %s has %d and its layers are no chain; name one with modules", j.Models[i].Name, len(lists))
		}
		CheckSegments(j.Spec.Errs, c, root.Children[lists[0]].Class, root.Children[lists[0]].Path)
		out.CheckpointCalls(to, map[int]bool{lists[0]: true})
		return &out
	})
}
