package advise

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
)

// Changes of the optimizer and of where it steps.
var _ = catalogue.add(
	Change{
		ID: "fused", Rank: 401, Title: "the fused optimizer", Group: "optimizer", Technique: "Optimizers",
		Numerics: Same, Effort: Switch, Reach: State | Stepping,
		Cost: "one pass over parameters, gradients and state instead of several", Source: "torch.optim's documentation: fused is the fastest implementation, before foreach and the for-loop",
		Options: fusedOptimizer,
	},
	Change{
		ID: "for-loop", Rank: 402, Title: "the for-loop optimizer", Group: "optimizer", Technique: "Optimizers",
		Numerics: Same, Effort: Switch, Reach: Stepping, Clever: true,
		Cost: "each operator of the step is launched for each parameter", Source: "torch.optim's documentation: foreach is faster, and takes the size of the parameters more at its peak",
		Options: loopOptimizer,
	},
	Change{
		ID: "in-backward", Rank: 403, Title: "the optimizer in the backward pass", Group: "optimizer", Technique: "Optimizers",
		Numerics: Same, Effort: Lines, Reach: Gradients | Stepping | Passing, Clever: true,
		Cost: "the optimizer is called for each parameter", Source: `PyTorch's tutorial "How to save memory by fusing the optimizer step into the backward pass"`,
		Options: inBackward,
	},
	Change{
		ID: "8-bit", Rank: 404, Title: "an 8-bit optimizer", Group: "optimizer", Technique: "Quantization",
		Numerics: Rounding, Effort: Rewrite, Reach: State | Stepping,
		Cost: "a quarter of the bytes of the state, in one pass", Source: `Dettmers et al. 2021, "8-bit Optimizers via Block-wise Quantization" (arXiv:2110.02861); ` + bertLarge + ": 57.8 s with AdamW, 56.0 s with Adam8bit",
		Options: func(b *Base) []Option { return eightBit(b, false) },
	},
	Change{
		ID: "8-bit-paged", Rank: 405, Title: "a paged 8-bit optimizer", Group: "optimizer", Technique: "Quantization",
		Numerics: Rounding, Effort: Rewrite, Reach: State | Stepping, Clever: true,
		Cost: "as 8-bit, and the state over PCI Express in both directions", Source: "Dettmers et al. 2023, QLoRA (arXiv:2305.14314), section 3: paged optimizers",
		Options: func(b *Base) []Option { return eightBit(b, true) },
	},
	Change{
		ID: "adafactor", Rank: 406, Title: "Adafactor", Group: "optimizer", Technique: "Optimizers",
		Numerics: Different, Effort: Lines, Reach: State | Stepping,
		Cost: "row and column sums in the place of second moments: twice the passes of AdamW", Source: bertLarge + ": 57.8 s with AdamW, 64.3 s with Adafactor",
		Options: adafactor,
	},
)

// sole is the job's optimizer, if it has one that train.optimizer names.
func (b *Base) sole() *program.Optimizer {
	if !b.trains() || b.Job.Spec.Train.Optimizer == nil || len(b.Job.Program.Optimizers) != 1 {
		return nil
	}
	return b.Job.Program.Optimizers[0]
}

// optimizer writes train.optimizer: a row with the arguments that are given and
// that it takes, and some of its own.
func (b *Base) optimizer(o *program.Optimizer, row *optim.Row, own ...string) string {
	var args []string
	for _, a := range o.Given {
		takes := slices.ContainsFunc(row.Signature().Params, func(p op.Param) bool { return p.Name == a.Name })
		if takes && !slices.ContainsFunc(own, func(s string) bool { return strings.HasPrefix(s, a.Name+":") }) {
			args = append(args, a.Name+": "+yamlValue(a.Value))
		}
	}
	args = append(args, own...)
	text := row.Name + ": "
	if len(args) > 0 {
		text += "{" + strings.Join(args, ", ") + "}"
	}
	if g := b.Job.Spec.Given("train.optimizer.groups"); g != nil {
		text += ", groups: " + g.Flow()
	}
	return "{" + text + "}"
}

// yamlValue writes the value of an argument.
func yamlValue(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case []int64:
		return strings.ReplaceAll(fmt.Sprint(v), " ", ", ")
	case nil:
		return "null"
	}
	return strings.NewReplacer("(", "[", ")", "]", "True", "true", "False", "false").Replace(program.Literal(v))
}

// python writes the constructor's call.
func python(row *optim.Row, args string) string {
	return fmt.Sprintf("optimizer = %s(model.parameters(), %s)", row.Signature().Python, args)
}

func fusedOptimizer(b *Base) []Option {
	o := b.sole()
	if o == nil || o.Row.Fused == nil || optim.IsFused(o.Args) || b.Job.Program.Offload.Optimizer || b.Job.Program.Offload.Parameters {
		return nil
	}
	if _, loop := argument(o, "foreach"); loop {
		return nil
	}
	return []Option{{Keys: keys(key("train.optimizer", b.optimizer(o, o.Row, "fused: true"))), Text: fmt.Sprintf("step all parameters in one kernel (%s, fused)", o.Row.Name),
		Code: python(o.Row, "..., fused=True"), Work: func(w *Work) { w.step(true, false) }}}
}

// argument is the value of an argument that the spec gives.
func argument(o *program.Optimizer, name string) (any, bool) {
	for _, a := range o.Given {
		if a.Name == name {
			return a.Value, true
		}
	}
	return nil, false
}

func loopOptimizer(b *Base) []Option {
	o := b.sole()
	if o == nil || o.Row.Foreach == nil || o.Row.ForLoop == nil || o.Row.Package != "" {
		return nil
	}
	if loop, fused := o.Row.Implementation(o.Args); loop || fused {
		return nil
	}
	return []Option{{Keys: keys(key("train.optimizer", b.optimizer(o, o.Row, "foreach: false"))), Text: fmt.Sprintf("step the parameters one after the other (%s without foreach)", o.Row.Name),
		Code: python(o.Row, "..., foreach=False"), Work: func(w *Work) { w.step(false, true) }}}
}

func inBackward(b *Base) []Option {
	o, t := b.sole(), &b.Job.Spec.Train
	if o == nil || !b.sugar() || t.InBackward.V || max(t.GradAccumulation.V, 1) > 1 || t.ClipGradNorm.Set || t.ClipGradValue.Set || b.Job.Program.Scaler || len(o.Groups) > 1 {
		return nil
	}
	return []Option{{Keys: keys(key("train.optimizer_in_backward", true)), Text: "step each parameter as soon as its gradient is ready, and drop that",
		Code: lines(fmt.Sprintf("optimizers = {p: %s([p], ...) for p in model.parameters()}", o.Row.Signature().Python),
			"def step(p):", "    optimizers[p].step()", "    optimizers[p].zero_grad()",
			"for p in model.parameters():", "    p.register_post_accumulate_grad_hook(step)"),
		Work: func(w *Work) { w.Steps = kernelsApart * w.Tensors }}}
}

func eightBit(b *Base, paged bool) []Option {
	o := b.sole()
	if o == nil || b.Job.Program.Offload.Optimizer || b.Job.Program.Offload.Parameters {
		return nil
	}
	row := optim.In8Bits(o.Row, paged)
	if row == nil {
		return nil
	}
	if _, given := argument(o, "amsgrad"); given {
		return nil
	}
	return []Option{{Keys: keys(key("train.optimizer", b.optimizer(o, row))), Text: "keep the optimizer's state in 8 bits (" + row.Name + " of bitsandbytes)",
		Code: lines("import bitsandbytes", python(row, "...")),
		Work: func(w *Work) {
			w.StateBytes /= 4
			w.step(true, false)
			w.Steps = w.Tensors
			if paged {
				w.Link += 2 * w.StateBytes
			}
		}}}
}

// adams are the optimizers that Adafactor may take the place of.
var adams = []*optim.Row{optim.Adam, optim.AdamW, optim.Adamax, optim.Adam8bit, optim.AdamW8bit}

func adafactor(b *Base) []Option {
	o := b.sole()
	row := optim.Adafactor
	if o == nil || !slices.Contains(adams, o.Row) || b.Job.Program.Offload.Optimizer || b.Job.Program.Offload.Parameters {
		return nil
	}
	if arg, err := row.Check(row.Args, b.Job.Machine.Env.Torch); arg != "" || err != nil {
		return nil
	}
	return []Option{{Keys: keys(key("train.optimizer", "Adafactor")), Text: "replace second moments by sums over rows and columns (Adafactor)",
		Code: python(row, "..."), Work: func(w *Work) {
			w.Optimizer *= 2
			w.StateBytes = 0
		}}}
}
