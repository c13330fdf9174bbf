package advise

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/program"
)

const sublinear = `Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost" (arXiv:1604.06174): one more forward pass, about 30 %`

// checkpointChanges are those that compute activations again in the backward
// pass rather than keep them.
var checkpointChanges = []*Change{
	{
		ID: "checkpoint", Title: "activation checkpointing", Group: "checkpoint", Technique: "Activation checkpointing",
		Numerics: Same, Effort: Lines, Reach: Passing,
		Cost:    "the forward pass of what is checkpointed once more; its share is that of the bytes that it saves",
		Source:  sublinear + "; " + bertLarge + ": 66.0 s without, 85.5 s with",
		Options: checkpointing,
	},
	{
		ID: "checkpoint-selective", Title: "selective checkpointing", Group: "checkpoint", Technique: "Activation checkpointing",
		Numerics: Same, Effort: Lines, Reach: Passing,
		Cost:    "the forward pass once more, without its matrix products",
		Source:  "Korthikanti et al. 2022 (arXiv:2205.05198): selective recomputation costs a few per cent; roofline of what is left",
		Options: selective,
	},
	{
		ID: "checkpoint-segments", Title: "checkpoint_sequential", Group: "checkpoint", Technique: "checkpoint_sequential",
		Numerics: Same, Effort: Lines, Reach: Passing,
		Cost:    "the forward pass of all segments but the last once more",
		Source:  sublinear,
		Options: segments,
	},
}

// blocks are modules of a model that are alike and called one after the other:
// what checkpoints are put around.
type blocks struct {
	patterns []string // that name them
	named    bool     // by the model itself: checkpoint: true
	n        int
	share    float64 // of the bytes that are saved for the backward pass
	chain    int     // modules of the model, if it is a chain, or of its longest nn.Sequential; 0: there is none
	chainAt  string  // path of the nn.Sequential; "": the model
	paths    []string
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
			if ch.Class != nil && ch.Class.Python == "nn.Sequential" && len(ch.Class.Children) > out.chain {
				out.chain, out.chainAt = len(ch.Class.Children), ch.Path
			}
		}
	}
	if m := b.Job.Definer.Model; m != nil {
		for _, p := range m.Checkpoint {
			out.patterns = append(out.patterns, p.V)
		}
	}
	if out.named = len(out.patterns) > 0; !out.named {
		out.patterns = lists(root)
	}
	out.find(root, "")
	saved, all := 0.0, 0.0
	tr, by := b.Outcome.Played.Trace, b.Outcome.Played.Totals.LayerSaved
	for i, n := range by {
		all += float64(n)
		if slices.ContainsFunc(out.paths, func(p string) bool { return inside(tr.Layers[i], p) }) {
			saved += float64(n)
		}
	}
	if all > 0 {
		out.share = saved / all
	}
	return out
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
func (b *Base) hf() bool { return b.Job.Spec.Model != nil && b.Job.Spec.Model.HF.Set }

func checkpointing(b *Base) []Option {
	x := b.blocks
	if !b.free() || x.n == 0 {
		return nil
	}
	const call = "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"
	all := Option{Name: "all", Text: fmt.Sprintf("compute the activations of all %d blocks again in the backward pass", x.n),
		Keys: keys(key("train.checkpoint", "true")), Work: func(w *Work) { w.recompute(x.share, true); w.Saved *= 1 - 0.9*x.share }}
	if !x.named {
		all.Keys = keys(key("train.checkpoint", "{modules: "+x.modules()+"}"))
	}
	all.Code = lines("for block in self.blocks:  # in forward", "    "+call)
	if b.hf() {
		all.Code = `model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})`
	}
	out := []Option{all}
	for _, n := range []int{2, 3, 4} {
		if x.n < n {
			break
		}
		share := x.share * float64(x.n/n) / float64(x.n)
		out = append(out, Option{
			Name: fmt.Sprintf("every-%d", n), Text: fmt.Sprintf("compute the activations of every %s block again in the backward pass", ordinals[n]),
			Keys: keys(key("train.checkpoint", fmt.Sprintf("{modules: %s, every: %d}", x.modules(), n))),
			Code: lines("for i, block in enumerate(self.blocks):  # in forward", fmt.Sprintf("    if (i + 1) %% %d == 0:", n), "        "+call, "    else:", "        x = block(x)"),
			Work: func(w *Work) { w.recompute(share, true); w.Saved *= 1 - 0.9*share },
		})
	}
	return out
}

var ordinals = map[int]string{2: "second", 3: "third", 4: "fourth"}

// selective keeps the results of matrix products, which are dear to compute.
func selective(b *Base) []Option {
	x := b.blocks
	if !b.free() || x.n == 0 {
		return nil
	}
	return []Option{{
		Text: "compute what is cheap in the blocks again in the backward pass, and keep the results of matrix products and attention",
		Keys: keys(key("train.checkpoint", "{modules: "+x.modules()+", save: [matmul, scaled_dot_product_attention]}")),
		Code: lines("from functools import partial", "from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts",
			"aten = torch.ops.aten",
			"keep = [aten.mm.default, aten.addmm.default, aten.bmm.default, aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_efficient_attention.default]",
			"x = checkpoint(block, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, keep))"),
		Work: func(w *Work) { w.recompute(x.share, false); w.Saved *= 1 - 0.5*x.share },
	}}
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
		out = append(out, Option{
			Name: fmt.Sprint(k), Text: fmt.Sprintf("run the layers in %d segments, of which all but the last are computed again in the backward pass", k),
			Keys: []estimate.Key{key("train.checkpoint", fmt.Sprintf(keys, k))},
			Code: fmt.Sprintf("x = torch.utils.checkpoint.checkpoint_sequential(%s, %d, x, use_reentrant=False)", called, k),
			Work: func(w *Work) { w.recompute(share, true); w.Saved *= 1 - 0.9*share },
		})
	}
	return out
}
