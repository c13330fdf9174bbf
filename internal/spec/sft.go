package spec

// The values of arguments of SFTConfig that others decide (SFTConfig.__post_init__,
// SFTTrainer.__init__ in trl/trainer).

// OfTRL reports whether the trainer is one of TRL.
func (t *Trainer) OfTRL() bool { return t != nil && (t.SFT != nil || t.OwnLoss()) }

// OwnLoss reports whether the trainer computes the loss outside of the model.
func (t *Trainer) OwnLoss() bool { return t != nil && (t.DPO != nil || t.GRPO != nil) }

// trl completes and checks the arguments of TRL's trainers.
func (s *Spec) trl(d *decoder, a *Arguments) {
	s.keysOfOthers()
	s.sft(a)
	if t := s.Trainer; !t.OfTRL() {
		return
	}
	if !a.Has("bf16") {
		a.values["bf16"] = !a.Bool("fp16")
	}
	if a.Bool("activation_offloading") && s.Offload == nil {
		at := a.Span("activation_offloading")
		s.Offload = &Offload{At: at, Activations: &Activations{
			At: at, Own: true, Head: true, Pin: Boolean{V: true}, Stream: Boolean{V: true}, Min: Integer{V: 1024}, Stash: Integer{V: 5},
		}}
	}
	s.dpo(d, a)
	s.grpo(d, a)
}

// sft completes and checks the arguments of SFTTrainer.
func (s *Spec) sft(a *Arguments) {
	t := s.Trainer
	switch {
	case t.SFT == nil && t.OneSample.Set && !t.Flattening.V:
		s.Errs.Addf(t.OneSample.At, "one_sample is of sft, or of hf with flattening: hf makes no sequence of several samples")
	case t.Sequences.Set && !t.Flattened():
		s.Errs.Addf(t.Sequences.At, "sequences needs flattening of hf, or packing or padding_free of sft, which make the samples of a batch one sequence")
	case t.Sequences.Set && t.OneSample.V:
		s.Errs.Addf(t.Sequences.At, "sequences and one_sample exclude each other")
	}
	if t.SFT == nil {
		return
	}
	if a.Value("loss_type") == nil {
		a.values["loss_type"] = "chunked_nll"
		if a.Bool("use_liger_kernel") {
			a.values["loss_type"] = "nll"
		}
	}
	if a.Text("loss_type") == "chunked_nll" && a.Bool("use_liger_kernel") {
		s.Errs.Addf(a.Span("loss_type"), "loss_type chunked_nll and use_liger_kernel exclude each other; loss_type nll goes with it")
	}
	if a.Text("loss_type") == "chunked_nll" && a.Number("label_smoothing_factor") != 0 {
		s.Errs.Addf(a.Span("label_smoothing_factor"), "label_smoothing_factor and loss_type chunked_nll exclude each other: SFTTrainer would fail; loss_type nll goes with it")
	}
	if a.Bool("padding_free") && !a.Bool("packing") && a.Value("max_length") != nil {
		s.Errs.Addf(a.Span("padding_free"), "padding_free without packing needs max_length: null, since it does not cut samples")
	}
}

// refused reports trainers whose loops there are not.
func (t *Trainer) refused(errs *Errors) bool {
	found := false
	for _, x := range []struct {
		class string
		v     *Value
	}{{"KTOTrainer", t.KTO}, {"RLOOTrainer", t.RLOO}, {"RewardTrainer", t.Reward}} {
		if x.v != nil {
			errs.Addf(x.v.Span, "trl.%s is not modelled; hf, sft, dpo and grpo are, and step: says a loop of your own", x.class)
			found = true
		}
	}
	return found
}

// OfSFT reports whether the trainer is SFTTrainer.
func (t *Trainer) OfSFT() bool { return t != nil && t.SFT != nil && t.SFT.Table != nil }

// Own are the files with blocks of the trainer's own.
func (t *Trainer) Own() []string {
	if !t.OfTRL() {
		return nil
	}
	return []string{"trainers/trl", "trainers/" + t.Key()}
}

// Flattened reports whether the samples of a batch are one sequence.
func (t *Trainer) Flattened() bool {
	if !t.OfSFT() {
		return t != nil && t.HF != nil && t.Flattening.V
	}
	a := &t.SFT.Arguments
	return a.Bool("padding_free") || a.Bool("packing") && a.Text("packing_strategy") != "wrapped"
}

// Samples is how many samples are one sequence.
func (t *Trainer) Samples() int64 {
	if t.Sequences.Set {
		return t.Sequences.V
	}
	return max(t.Args().Int("per_device_train_batch_size"), 2)
}

// Length is how long a batch's sequences are, of which a spec says that samples have so
// many tokens; 0: it does not say.
func (t *Trainer) Length(seq int64) int64 {
	if t == nil || t.Args() == nil {
		return seq
	}
	a := t.Args()
	if n, _ := a.Value("max_length").(int64); t.OfTRL() && n > 0 && (seq == 0 || seq > n || t.OfSFT() && a.Bool("packing")) {
		seq = n
	}
	if t.Flattened() {
		seq *= a.Int("per_device_train_batch_size")
	}
	if n := a.Int("pad_to_multiple_of"); t.OfTRL() && n > 0 {
		seq = (seq + n - 1) / n * n
	}
	return seq
}
