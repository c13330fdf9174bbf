package advise

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

const sublinear = `Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost" (arXiv:1604.06174): one more forward pass, about 30 %`

// Changes that compute activations again in the backward
// pass rather than keep them.
var _ = catalogue.add(
	Change{
		ID: "checkpoint", Rank: 301, Title: "activation checkpointing", Group: "checkpoint", Technique: "Activation checkpointing",
		Numerics: Same, Effort: Lines, Reach: Passing,
		Cost:    "the forward pass of what is checkpointed once more: its share of the products, and of the bytes that are saved",
		Source:  sublinear + "; " + bertLarge + ": 66.0 s without, 85.5 s with",
		Options: checkpointing,
	},
	Change{
		ID: "checkpoint-every", Rank: 302, Title: "checkpoints of some blocks", Group: "checkpoint", Technique: "Activation checkpointing",
		Numerics: Same, Effort: Lines, Reach: Passing, Clever: true,
		Cost:    "as checkpoint, for every second, third or fourth block",
		Source:  sublinear,
		Options: checkpointingSome,
	},
	Change{
		ID: "checkpoint-selective", Rank: 303, Title: "selective checkpointing", Group: "checkpoint", Technique: "Activation checkpointing",
		Numerics: Same, Effort: Lines, Reach: Passing, Clever: true,
		Cost:    "the forward pass of the blocks once more, without the products and the bytes of what is kept",
		Source:  "Korthikanti et al. 2022 (arXiv:2205.05198): selective recomputation costs a few per cent; roofline of what is left",
		Options: selective,
	},
	Change{
		ID: "checkpoint-segments", Rank: 304, Title: "checkpoint_sequential", Group: "checkpoint", Technique: "checkpoint_sequential",
		Numerics: Same, Effort: Lines, Reach: Passing, Clever: true,
		Cost:    "the forward pass of all segments but the last once more",
		Source:  sublinear,
		Options: segments,
	},
)

// blocks are modules of a model that are alike and called one after the other:
// what checkpoints are put around.
type blocks struct {
	patterns []string // that name them
	named    bool     // by the model itself: checkpoint: true
	n        int
	share    float64 // of the bytes that are saved for the backward pass
	products float64 // share of what forward passes compute in products
	chain    int     // modules of the model, if it is a chain, or of its longest nn.Sequential; 0: there is none
	chainAt  string  // path of the nn.Sequential; "": the model
	paths    []string
	inside   []bool // by layer of the trace
}

// blocksOf finds the blocks that the model names or, of a model that names none,
// the modules in a list whose class is one of the spec's.
func blocksOf(b *Base) *blocks {
	if !b.trains() || len(b.Job.Program.Models) == 0 {
		return nil
	}
	root := b.Job.Program.Models[0].Root
	out := &blocks{chain: len(root.Forward.Chain())}
	if out.chain == 0 {
		for _, ch := range root.Children {
			if ch.Class != nil && ch.Class.Layer == nn.Sequential && len(ch.Class.Children) > out.chain {
				out.chain, out.chainAt = len(ch.Class.Children), ch.Path
			}
		}
	}
	if m := b.Job.Definer.Model; m != nil {
		for _, p := range m.Checkpoint {
			if !slices.Contains(out.patterns, p.V) {
				out.patterns = append(out.patterns, p.V)
			}
		}
	}
	if out.named = len(out.patterns) > 0; !out.named {
		out.patterns = lists(root)
	}
	out.find(root, "")
	saved, all := 0.0, 0.0
	t := &b.Outcome.Played.Totals
	out.inside = make([]bool, len(b.Outcome.Played.Trace.Layers))
	for i, l := range b.Outcome.Played.Trace.Layers {
		out.inside[i] = slices.ContainsFunc(out.paths, func(p string) bool { return inside(l, p) })
	}
	for i, n := range t.LayerSaved {
		all += float64(n)
		if out.inside[i] {
			saved += float64(n)
		}
	}
	if all > 0 {
		out.share = saved / all
	}
	out.products, _ = b.computed(out, nil)
	return out
}

// computed says what operators compute in the blocks: their share of all products,
// and the bytes of their results. Without rows all operators are meant.
func (b *Base) computed(x *blocks, rows []*op.Op) (share, bytes float64) {
	t := &b.Outcome.Played.Totals
	for _, p := range t.Products {
		if x.inside[p.Layer] && (rows == nil || slices.Contains(rows, p.Row)) {
			share += p.Flops / t.Flops
			bytes += float64(p.Bytes)
		}
	}
	return share, bytes
}

// twice tells of modules below c, at the paths or inside, whose running statistics
// a second forward pass updates once more: those that have some (Module.running_mean
// of batch and instance normalization).
func twice(c *program.Class, paths []string) bool {
	found := false
	c.Walk(func(at string, c *program.Class) {
		if slices.ContainsFunc(paths, func(p string) bool { return p == "" || inside(at, p) }) {
			found = found || c.Is().Running && len(c.Buffers) > 0 || c.Forward != nil && normalizes(c.Forward)
		}
	})
	return found
}

// normalizes reports whether a function calls an operator of the spec's own that
// takes running statistics, as F.batch_norm does.
func normalizes(f *program.Func) bool {
	var in func(e *program.Expr) bool
	in = func(e *program.Expr) bool {
		if e == nil {
			return false
		}
		if a, is := e.OpArgs.(*aten.NormFunctionArgs); is && e.Kind == program.CallOp && (e.Inputs == nil || e.Inputs[a.Statistics()] >= 0) {
			return true
		}
		return slices.ContainsFunc(e.Args, in)
	}
	return slices.ContainsFunc(f.Statements(), func(s *program.Stmt) bool { return in(s.Value) || slices.ContainsFunc(s.Values, in) })
}

// updated marks an option that computes modules at the paths again if their running
// statistics are updated twice. PyTorch does so whatever kind of checkpoint it is;
// gradients are the same, as they are normalized by the statistics of the batch. Two
// updates with momentum 1 - sqrt(1-m) are one with m.
func (b *Base) updated(o *Option, name string, paths []string) {
	if !twice(b.Job.Program.Models[0].Root, paths) {
		return
	}
	o.Worse = Statistics
	o.Text += "; running statistics of batch normalization are then updated twice in a step, unless its momentum is changed"
	o.Code += "\n" + lines(
		"for m in "+name+".modules():  # once, when the model is made: two updates of statistics are then one of before",
		"    if getattr(m, \"momentum\", None):",
		"        m.momentum = 1 - (1 - m.momentum) ** 0.5")
}

// inside reports whether a module is the one at path or lies in it.
func inside(module, path string) bool { return module == path || strings.HasPrefix(module, path+".") }

// lists are the patterns of modules that stand in a list of several, each with
// modules of its own.
func lists(root *program.Class) []string {
	count := map[string]int{}
	var order []string
	for _, ch := range root.Children {
		i := strings.LastIndexByte(ch.Path, '.')
		if ch.Class == nil || len(ch.Class.Children) == 0 {
			continue
		}
		list := ""
		if i >= 0 {
			list = ch.Path[:i]
		}
		if count[list]++; count[list] == 2 {
			order = append(order, list)
		}
	}
	var out []string
	for _, l := range order {
		for _, ch := range root.Children {
			if i := strings.LastIndexByte(ch.Path, '.'); ch.Class != nil && len(ch.Class.Children) > 0 && (i < 0 && l == "" || i >= 0 && ch.Path[:i] == l) {
				out = append(out, ch.Path)
			}
		}
	}
	return out
}

// find collects the outermost modules that the patterns fit, or that stand in a
// list that they fit.
func (x *blocks) find(c *program.Class, path string) {
	fits := program.Patterns(x.patterns)
	for _, i := range c.Registered() {
		ch := &c.Children[i]
		at := program.Join(path, ch.Path)
		hit := fits.Fits(at)
		for n := len(path) + 1; n < len(at); n++ {
			hit = hit || at[n] == '.' && fits.Fits(at[:n])
		}
		switch {
		case hit:
			x.paths = append(x.paths, at)
		case ch.Class != nil:
			x.find(ch.Class, at)
		}
	}
	x.n = len(x.paths)
}

// free reports whether nothing is checkpointed yet.
func (b *Base) free() bool {
	c := b.Job.Spec.Train.Checkpoint
	return b.blocks != nil && (c == nil || c.When != nil && !c.When.Bool && !c.When.IsExpr())
}

// left is the part of the blocks that is not checkpointed yet, if they are called as
// checkpoints keep nothing else: all of them, or those that every: leaves out; 0 otherwise.
func (b *Base) left() float64 {
	x, c := b.blocks, b.Job.Spec.Train.Checkpoint
	switch {
	case b.free():
		return 1
	case x == nil || x.n == 0 || !x.named || c.Every.V < 2 || c.When != nil || len(c.Modules) > 0 || len(c.Save) > 0 || c.Reentrant.V:
		return 0
	}
	return 1 - float64(x.n/int(c.Every.V))/float64(x.n)
}

// modules is the list of patterns in a spec.
func (x *blocks) modules() string {
	quoted := make([]string, len(x.patterns))
	for i, p := range x.patterns {
		quoted[i] = fmt.Sprintf("%q", p)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// hf reports whether the model is one of transformers, which has checkpoints of
// its own.
func (b *Base) hf() bool { return b.Job.Spec.Model != nil && b.Job.Spec.Model.OfHF() }

func checkpointing(b *Base) []Option {
	x, left := b.blocks, b.left()
	if left == 0 || x.n == 0 {
		return nil
	}
	all := Option{Name: "all", Text: fmt.Sprintf("compute the activations of all %d blocks again in the backward pass", x.n),
		Keys: keys(key("train.checkpoint", "true")), Work: func(w *Work) { w.recompute(left*x.products, x.share, left*x.share); w.Saved *= 1 - 0.9*x.share }}
	if !x.named {
		all.Keys = keys(key("train.checkpoint", "{modules: "+x.modules()+"}"))
	}
	all.Code = lines("for block in self.blocks:  # in forward", "    "+checkpointCall)
	if b.hf() {
		all.Code = `model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})`
	}
	b.updated(&all, "self.blocks", x.paths)
	return []Option{all}
}

const checkpointCall = "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"

// checkpointingSome leaves the activations of the other blocks where they are.
func checkpointingSome(b *Base) []Option {
	x := b.blocks
	if !b.free() {
		return nil
	}
	var out []Option
	for _, n := range []int{2, 3, 4} {
		if x.n < n {
			break
		}
		part := float64(x.n/n) / float64(x.n)
		var paths []string
		for i := n - 1; i < x.n; i += n {
			paths = append(paths, x.paths[i])
		}
		o := Option{
			Name: fmt.Sprint(n), Text: fmt.Sprintf("compute the activations of every %s block again in the backward pass", ordinals[n]),
			Keys: keys(key("train.checkpoint", fmt.Sprintf("{modules: %s, every: %d}", x.modules(), n))),
			Code: lines("for i, block in enumerate(self.blocks):  # in forward", fmt.Sprintf("    if (i + 1) %% %d == 0:", n), "        "+checkpointCall, "    else:", "        x = block(x)"),
			Work: func(w *Work) {
				w.recompute(part*x.products, part*x.share, part*x.share)
				w.Saved *= 1 - 0.9*part*x.share
			},
		}
		b.updated(&o, fmt.Sprintf("self.blocks[%d::%d]", n-1, n), paths)
		out = append(out, o)
	}
	return out
}

var ordinals = map[int]string{2: "second", 3: "third", 4: "fourth"}

// dear are operators whose results a selective checkpoint keeps, by the words of
// specs for them: they take most of the time of a forward pass.
var dear = []struct{ word, text, aten string }{
	{"matmul", "matrix products", "aten.mm.default, aten.addmm.default, aten.bmm.default"},
	{"convolution", "convolutions", "aten.convolution.default"},
	{"scaled_dot_product_attention", "attention", "aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_efficient_attention.default"},
}

// selective keeps the results of those that the blocks have. In blocks without any
// it is what plain checkpoints are.
func selective(b *Base) []Option {
	x := b.blocks
	if !b.free() || x.n == 0 {
		return nil
	}
	var words, texts, names []string
	var rows []*op.Op
	for _, d := range dear {
		keep := aten.Keepable(d.word)
		if share, _ := b.computed(x, keep); share > 0 {
			words, texts, names, rows = append(words, d.word), append(texts, d.text), append(names, d.aten), append(rows, keep...)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	kept, bytes := b.computed(x, rows)
	written := max(x.share-bytes/b.Work.Forward, 0)
	o := Option{
		Text: "compute what is cheap in the blocks again in the backward pass, and keep the results of " + and(texts),
		Keys: keys(key("train.checkpoint", "{modules: "+x.modules()+", save: ["+strings.Join(words, ", ")+"]}")),
		Code: lines("from functools import partial", "from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts",
			"aten = torch.ops.aten",
			"keep = ["+strings.Join(names, ", ")+"]",
			"x = checkpoint(block, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, keep))"),
		Work: func(w *Work) {
			w.recompute(x.products-kept, written, x.share)
			w.Saved *= min(1-0.9*x.share+bytes/max(b.Work.Saved*b.Work.Microbatches, 1), 1)
		},
	}
	b.updated(&o, "block", x.paths)
	return []Option{o}
}

// and joins words as sentences do.
func and(words []string) string {
	n := len(words) - 1
	if n == 0 {
		return words[0]
	}
	return strings.Join(words[:n], ", ") + " and " + words[n]
}

// segments cuts a model that is a chain of modules.
func segments(b *Base) []Option {
	if !b.free() || b.blocks.chain < 4 {
		return nil
	}
	keys, called := "{segments: %d}", "self.layers"
	if at := b.blocks.chainAt; at != "" {
		keys, called = fmt.Sprintf("{modules: [%q], segments: %%d}", at), "self."+at
	}
	var out []Option
	for _, k := range []int{2, 3, 4, 6, 8} {
		if 2*k > b.blocks.chain {
			break
		}
		share := float64(k-1) / float64(k)
		o := Option{
			Name: fmt.Sprint(k), Text: fmt.Sprintf("run the layers in %d segments, of which all but the last are computed again in the backward pass", k),
			Keys: []estimate.Key{key("train.checkpoint", fmt.Sprintf(keys, k))},
			Code: fmt.Sprintf("x = torch.utils.checkpoint.checkpoint_sequential(%s, %d, x, use_reentrant=False)", called, k),
			Work: func(w *Work) { w.recompute(share, share, share); w.Saved *= 1 - 0.9*share },
		}
		b.updated(&o, fmt.Sprintf("%s[:%d]", called, b.blocks.chain/k*(k-1)), []string{b.blocks.chainAt})
		out = append(out, o)
	}
	return out
}
