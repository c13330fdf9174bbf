package advise

// Changes of the types in which a job computes.
var _ = catalogue.add(
	Change{
		ID: "amp", Rank: 201, Title: "autocast to 16 bits", Group: "precision", Technique: "Mixed precision (autocast)",
		Numerics: Rounding, Effort: Lines, Reach: Stepping | Passing,
		Cost:    "matrix products at the rate of tensor cores, half of the bytes of activations; weights are converted in each forward pass",
		Source:  bertLarge + ": 57.8 s in float32, 27.5 s with fp16",
		Options: amp,
	},
	Change{
		ID: "bf16", Rank: 202, Title: "the whole model in bfloat16", Group: "precision", Technique: "The whole model in 16 bit",
		Numerics: Different, Effort: Lines, Reach: Everything,
		Cost:    "matrix products at the rate of tensor cores, half of all bytes",
		Source:  "torchtune's overview of memory optimizations (2 bytes a parameter); weights of 8 bits of mantissa round small updates away (Zamirai et al. 2020, arXiv:2010.06192)",
		Options: wholeModel,
	},
)

// amp converts the inputs of matrix products: to bfloat16, or to float16 with a
// GradScaler where tensor cores have no other type.
func amp(b *Base) []Option {
	if b.Job.Spec.Train.Precision.V != "fp32" || b.Job.Machine.Env.Arch < 70 {
		return nil
	}
	o := Option{Name: "bf16", Keys: keys(key("train.precision", "amp-bf16")), Text: "compute the forward pass under autocast in bfloat16",
		Code: lines(`with torch.autocast("cuda", dtype=torch.bfloat16):`, "    loss = loss_fn(model(x), y)", "loss.backward()")}
	if !b.rate.bfloat16 {
		o = Option{Name: "fp16", Keys: keys(key("train.precision", "amp-fp16")), Text: "compute the forward pass under autocast in float16, with a GradScaler",
			Code: lines("scaler = torch.amp.GradScaler()", `with torch.autocast("cuda", dtype=torch.float16):`, "    loss = loss_fn(model(x), y)", "scaler.scale(loss).backward()",
				"scaler.step(optimizer)", "scaler.update()")}
	}
	o.Work = func(w *Work) {
		w.Half, w.Flops = w.Half+w.Flops, 0
		w.Forward /= 2
		w.Backward /= 2
		w.Saved /= 2
		w.Forward += w.Microbatches * w.ParameterBytes / 2
		w.Kernels += w.Microbatches * w.Tensors
	}
	return []Option{o}
}

func wholeModel(b *Base) []Option {
	p := b.Job.Spec.Train.Precision.V
	if !b.rate.bfloat16 || p == "bf16" || p == "fp16" {
		return nil
	}
	mixed := p != "fp32"
	return []Option{{Keys: keys(key("train.precision", "bf16")), Text: "convert the whole model to bfloat16: weights, gradients and optimizer state",
		Code: lines("model = model.to(torch.bfloat16)  # before the optimizer is made", "x = x.to(torch.bfloat16)"),
		Work: func(w *Work) {
			w.Half, w.Flops = w.Half+w.Flops, 0
			if !mixed {
				w.Forward /= 2
				w.Backward /= 2
				w.Saved /= 2
			}
			w.Optimizer /= 2
			w.Link /= 2
			w.ParameterBytes /= 2
			w.GradientBytes /= 2
			w.StateBytes /= 2
		}}}
}
