package advise

// Changes that keep something in host memory.
var _ = catalogue.add(
	Change{
		ID: "offload-activations", Rank: 601, Title: "activations in host memory", Group: "offload-activations", Technique: "Offloading to the CPU",
		Numerics: Same, Effort: Lines, Reach: Passing, Clever: true,
		Cost: "what autograd saves over PCI Express, in both directions, while the GPU waits", Source: "Rhu et al. 2016, vDNN (arXiv:1602.08124); torch.autograd.graph.save_on_cpu copies in the compute stream",
		Options: func(b *Base) []Option {
			if !b.trains() || b.Job.Program.Offload.Activations {
				return nil
			}
			return []Option{{Keys: keys(key("offload.activations", true), key("offload.pin_memory", true)), Text: "keep what autograd saves in page-locked host memory",
				Code: lines("with torch.autograd.graph.save_on_cpu(pin_memory=True):", "    loss = loss_fn(model(x), y)"),
				Work: func(w *Work) { w.Link += 2 * w.Microbatches * w.Saved }}}
		},
	},
	Change{
		ID: "offload-optimizer", Rank: 602, Title: "the optimizer on the CPU", Group: "offload-state", Technique: "Offloading to the CPU",
		Numerics: Same, Effort: Rewrite, Reach: Gradients | State | Stepping, Clever: true,
		Cost: "gradients and parameters over PCI Express, and the update on the CPU", Source: "Ren et al. 2021, ZeRO-Offload (arXiv:2101.06840), table 4: 1.39 s for a billion parameters with PyTorch's Adam",
		Options: offloadOptimizer,
	},
	Change{
		ID: "offload-parameters", Rank: 603, Title: "parameters on the CPU", Group: "offload-state", Technique: "Offloading to the CPU",
		Numerics: Same, Effort: Rewrite, Reach: Everything, Clever: true,
		Cost:   "the parameters over PCI Express in each forward and backward pass, gradients once, from pageable memory, and the update on the CPU",
		Source: "Ren et al. 2021, ZeRO-Offload (arXiv:2101.06840); Harris 2012 on pageable memory",
		Options: func(b *Base) []Option {
			if !b.onDevice() {
				return nil
			}
			return []Option{{Keys: keys(key("offload.parameters", true)), Text: "keep the parameters on the CPU and copy each module's to the GPU while it runs",
				Settles: State | Stepping, Code: "# accelerate's cpu_offload, or hooks as memplan export torch prints them",
				Work: func(w *Work) {
					w.Link += (2*w.Microbatches*w.ParameterBytes + w.GradientBytes*w.Microbatches) / unpinned
					w.onHost()
				}}}
		},
	},
)

// onDevice reports whether parameters and optimizer are on the GPU.
func (b *Base) onDevice() bool {
	o := b.Job.Program.Offload
	return b.trains() && !o.Parameters && !o.Optimizer && len(b.Job.Program.Optimizers) > 0
}

// onHost moves the optimizer's step to the CPU.
func (w *Work) onHost() { w.Host, w.Optimizer, w.Steps = w.Trained, 0, 0 }

func offloadOptimizer(b *Base) []Option {
	if !b.onDevice() || b.Job.Program.InBackward {
		return nil
	}
	code := lines("copies = [p.detach().cpu().requires_grad_() for p in model.parameters()]", "optimizer = torch.optim.AdamW(copies, ...)",
		"# after backward: c.grad = p.grad.cpu() for each; optimizer.step(); p.copy_(c)")
	work := func(w *Work) {
		w.Link += (w.GradientBytes + w.ParameterBytes) / unpinned
		w.onHost()
	}
	return []Option{
		{Name: "state", Reach: State | Stepping, Settles: State | Stepping, Keys: keys(key("offload.optimizer", true)), Text: "keep the optimizer and its state on the CPU", Code: code, Work: work},
		{Name: "gradients", Settles: State | Stepping, Keys: keys(key("offload.optimizer", true), key("offload.gradients", true)), Text: "keep the optimizer, its state and the gradients on the CPU", Code: code,
			Work: func(w *Work) {
				w.Link += w.GradientBytes * (w.Microbatches - 1) / unpinned
				work(w)
			}},
	}
}
