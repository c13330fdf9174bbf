package advise

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/torchver"
)

// Figures that several rows refer to: bert-large with 512 tokens on a V100, batch
// 4, before and after each change.
const bertLarge = `Hugging Face, "Efficient Training on a Single GPU" (transformers 4.21 documentation): bert-large, 512 tokens, V100`

// Changes of the step, of its loop and of the allocator under it.
var _ = catalogue.add(
	Change{
		ID: "expandable-segments", Rank: 101, Title: "expandable segments", Group: "allocator", Technique: "Options of the allocator",
		Numerics: Same, Effort: Switch,
		Cost: "nothing", Source: "PyTorch's notes on CUDA semantics (PYTORCH_CUDA_ALLOC_CONF): mapping takes place while the job warms up",
		Recorded: true, Options: expandable,
	},
	Change{
		ID: "zero-grad", Rank: 102, Title: "gradients dropped before the forward pass", Group: "zero_grad", Technique: "zero_grad",
		Numerics: Same, Effort: Lines, Reach: Gradients | Passing,
		Cost: "nothing", Source: "PyTorch's performance tuning guide: set_to_none is the cheaper of the two",
		Options: zeroGrad,
	},
	Change{
		ID: "loop", Rank: 103, Title: "the step in a function", Group: "loop", Technique: "Keeping tensors: a leak",
		Numerics: Same, Effort: Lines, Reach: Passing,
		Cost: "nothing", Source: "Python's scopes: names of a function are gone when it returns",
		Options: func(b *Base) []Option {
			if b.Job.Spec.Train.Loop.V != "flat" {
				return nil
			}
			return []Option{{Keys: keys(key("train.loop", "function")), Text: "write the step as a function, so that its tensors are freed when it returns",
				Code: lines("def train_step():", "    ...  # what the body of the loop was", "for step in range(steps):", "    train_step()")}}
		},
	},
	Change{
		ID: "no-prefetch", Rank: 104, Title: "batches copied when they are needed", Group: "prefetch", Technique: "The next batch on the GPU",
		Numerics: Same, Effort: Lines, Reach: Passing,
		Cost: "the batch's bytes over PCI Express", Source: "data sheets of PCI Express",
		Options: func(b *Base) []Option {
			if !b.Job.Spec.Data.DevicePrefetch.V {
				return nil
			}
			return []Option{{Keys: keys(key("data.device_prefetch", false)), Text: "copy a batch when its step begins, not while the step before runs",
				Code: `batch = [t.to("cuda", non_blocking=True) for t in batch]  # in the step, on its own stream`, Work: func(w *Work) { w.Link += w.Batch * w.Microbatches }}}
		},
	},
	Change{
		ID: "eval-batch", Rank: 105, Title: "smaller batches in the evaluation", Group: "eval", Technique: "Evaluation and inference",
		Numerics: Same, Effort: Switch, Reach: Passing,
		Cost: "nothing in training steps", Source: "evaluation keeps no gradients and no batch statistics",
		Options: evalBatch,
	},
	Change{
		ID: "ema-cpu", Rank: 106, Title: "the average of the weights on the CPU", Group: "ema", Technique: "An average of the weights",
		Numerics: Same, Effort: Lines, Reach: Everything, Clever: true,
		Cost: "the parameters over PCI Express in each step", Source: "data sheets of PCI Express; pageable memory: Harris 2012",
		Options: func(b *Base) []Option {
			if e := b.Job.Program.EMA; e == nil || e.CPU || b.Job.Spec.Train.EMA == nil {
				return nil
			}
			return []Option{{Keys: keys(key("train.ema.device", "cpu")), Text: "keep the averaged weights in host memory",
				Code: `ema = AveragedModel(model, device="cpu", multi_avg_fn=get_ema_multi_avg_fn(decay))`, Work: func(w *Work) { w.Link += w.ParameterBytes / unpinned }}}
		},
	},
	Change{
		ID: "accumulate", Rank: 107, Title: "gradient accumulation", Group: "batch", Technique: "Gradient accumulation",
		Numerics: Same, Effort: Lines, Reach: Passing,
		Cost:    "the kernels of each microbatch cost their launches again, and gradients are added up",
		Source:  bertLarge + ": 57.8 s with batch 4, 66.0 s with 4 of 1",
		Options: accumulate,
	},
	Change{
		ID: "smaller-batch", Rank: 108, Title: "inference in smaller batches", Group: "batch", Technique: "Batch size",
		Numerics: Same, Effort: Switch, Reach: Passing,
		Cost:    "the kernels of each batch cost their launches again",
		Source:  "samples of a batch do not see each other in eval mode",
		Options: smallerBatch,
	},
)

func expandable(b *Base) []Option {
	conf := b.Job.Machine.ConfText
	if strings.Contains(conf, "expandable_segments") {
		return nil
	}
	const on = "expandable_segments:True"
	if conf != "" {
		conf += ","
	}
	return []Option{{Keys: keys(key(allocConf, conf+on)), Text: "let the allocator grow its segments",
		Code: "export " + torchver.AllocConf + "=" + conf + on + "  # in the shell, before Python starts"}}
}

func zeroGrad(b *Base) []Option {
	z := b.Job.Spec.Train.ZeroGrad
	if !b.sugar() || b.Job.Program.InBackward {
		return nil
	}
	var o Option
	if z.SetToNone.Set && !z.SetToNone.V {
		o.Keys = append(o.Keys, key("train.zero_grad.set_to_none", true))
	}
	switch z.At.V {
	case "never":
		o.Worse = Different
		fallthrough
	case "before_backward":
		o.Keys = append(o.Keys, key("train.zero_grad.at", "before_forward"))
	}
	if len(o.Keys) == 0 {
		return nil
	}
	o.Text = "drop the gradients before the forward pass"
	o.Code = lines("optimizer.zero_grad(set_to_none=True)  # first thing in the step", "out = model(x)")
	return []Option{o}
}

func evalBatch(b *Base) []Option {
	e := b.Job.Program.Eval
	if e == nil || b.Job.Spec.Eval == nil {
		return nil
	}
	var out []Option
	n := b.Job.Program.Batch
	if size := b.Job.Spec.Eval.BatchSize; size.Set {
		n = size.V
	}
	for n > 1 && len(out) < 4 {
		n /= 2
		out = append(out, Option{Name: fmt.Sprint(n), Keys: keys(key("eval.batch_size", n)), Text: fmt.Sprintf("evaluate in batches of %d", n),
			Code: fmt.Sprintf("eval_loader = DataLoader(eval_set, batch_size=%d)", n)})
	}
	return out
}

// smallerBatch cuts the batch of a job that only infers.
func smallerBatch(b *Base) []Option {
	if b.trains() || b.Job.Spec.Step != nil {
		return nil
	}
	var out []Option
	for n, k := b.Job.Program.Batch/2, 2.0; n >= 1; n, k = n/2, 2*k {
		out = append(out, Option{Name: fmt.Sprint(n), Keys: keys(key("train.batch_size", n)), Text: fmt.Sprintf("infer in batches of %d", n),
			Code: fmt.Sprintf("loader = DataLoader(dataset, batch_size=%d)", n), Work: func(w *Work) { w.Kernels *= k }})
	}
	return out
}

// normBatch is the batch from which on batch normalization hardly depends on its
// size: the error of ResNet-50 is the same from 16 images on, and grows below (Wu
// and He 2018, "Group Normalization", arXiv:1803.08494, figure 1).
const normBatch = 16

// accumulate offers the microbatches into which the batch divides: by powers of
// two, by each divisor if there are few, and down to one sample.
func accumulate(b *Base) []Option {
	t := &b.Job.Spec.Train
	batch, already := b.Job.BatchSize(), max(t.GradAccumulation.V, 1)
	if !b.sugar() || t.InBackward.V || batch < 2 {
		return nil
	}
	var ns []int64
	for n := int64(2); n <= batch; n++ {
		if batch%n == 0 && (n&(n-1) == 0 || n == batch || batch <= 64) {
			ns = append(ns, n)
		}
	}
	normalized := b.has(func(l nn.Layer) bool { return l.Batch })
	var out []Option
	for _, n := range ns {
		text := fmt.Sprintf("accumulate gradients over %d microbatches of %d", n*already, batch/n)
		worse := Same
		if normalized { // statistics are those of a microbatch
			text += "; batch normalization then sees microbatches"
			if worse = Rounding; batch/n < normBatch {
				worse = Different
			}
		}
		out = append(out, Option{
			Name: fmt.Sprint(n * already), Keys: keys(key("train.batch_size", batch/n), key("train.grad_accumulation", n*already)), Text: text, Worse: worse,
			Code: lines(
				fmt.Sprintf("for i, (x, y) in enumerate(loader):  # batch_size=%d", batch/n),
				fmt.Sprintf("    loss = loss_fn(model(x), y) / %d", n*already),
				"    loss.backward()",
				fmt.Sprintf("    if (i + 1) %% %d == 0:", n*already),
				"        optimizer.step()",
				"        optimizer.zero_grad()"),
			Work: func(w *Work) {
				k := float64(n)
				w.Optimizer += 3 * w.GradientBytes * w.Microbatches * (k - 1)
				w.Kernels *= k
				w.Microbatches *= k
				w.Saved /= k
				w.Batch /= k
			},
		})
	}
	return out
}

// has reports whether a model that is trained has a layer with a property.
func (b *Base) has(property func(l nn.Layer) bool) bool {
	found := false
	for _, m := range b.Job.Program.Models {
		if !m.Eval {
			m.Root.Walk(func(_ string, c *program.Class) { found = found || property(c.Is()) })
		}
	}
	return found
}

func keys(list ...estimate.Key) []estimate.Key { return list }
