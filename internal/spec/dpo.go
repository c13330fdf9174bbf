package spec

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/trainer"
)

// samplesOfPair is how many samples a pair is: the preferred one and the rejected one.
const samplesOfPair = 2

// modelledLosses are the values of loss_type whose loss specs/trainers/dpo.yaml computes.
var modelledLosses = []string{"sigmoid", "hinge", "ipo", "nca_pair", "robust", "bco_pair", "sppo_hard", "apo_zero", "apo_down", "sigmoid_norm"}

// words are a text, or the texts of a list.
func (v *Value) words() []string {
	if v.Kind != List {
		return []string{v.Str}
	}
	var out []string
	for _, it := range v.Items {
		out = append(out, it.Str)
	}
	return out
}

// DisablesDropout reports whether the trainer sets the probabilities of all modules Dropout to 0.
func (t *Trainer) DisablesDropout() bool {
	return t != nil && t.DPO != nil && t.Args().Bool("disable_dropout")
}

// withoutDropout is the section peft with adapters that have no dropout.
func withoutDropout(peft *Value) *Value {
	out := mapping()
	for _, p := range peft.Pairs {
		if p.Key.Str == "lora" && p.Value.Kind == Map {
			if p.Value = p.Value.without("lora_dropout"); p.Value == nil { // nothing else was given
				p.Value = mapping()
			}
		}
		out.Pairs = append(out.Pairs, p)
	}
	return out
}

// dpo completes and checks the arguments of DPOTrainer.
func (s *Spec) dpo(a *Arguments) {
	if s.Trainer.DPO == nil {
		return
	}
	switch at := s.Trainer.DPO.At; {
	case s.PEFT == nil || s.PEFT.LoRA == nil && s.PEFT.IA3 == nil:
		s.Errs.Addf(at, "trainer: dpo without an adapter is not modelled: it has a second model, the reference; with peft: {lora: {...}} the reference is the model without its adapters")
	case len(s.PEFT.Kernels) > 0:
		s.Errs.Addf(s.PEFT.At, "peft.kernels with trainer: dpo is not modelled; leave out kernels")
	}
	if a.Bool("precompute_ref_log_probs") {
		s.Errs.Addf(a.Span("precompute_ref_log_probs"), "precompute_ref_log_probs: the passes over the data before training are not modelled; precompute_ref_log_probs: false is")
	}
	if a.Bool("use_liger_kernel") {
		s.Errs.Addf(a.Span("use_liger_kernel"), "use_liger_kernel: the fused loss of DPOTrainer is not modelled; use_liger_kernel: false is")
	}
	losses := []string{"sigmoid"}
	if v, ok := a.Value("loss_type").(*Value); ok {
		losses = v.words()
	}
	for _, l := range losses {
		switch {
		case !slices.Contains(trainer.DPOLosses, l):
			s.Errs.Unknown(a.Span("loss_type"), "loss_type of DPOConfig", l, trainer.DPOLosses)
			return
		case !slices.Contains(modelledLosses, l):
			s.Errs.Addf(a.Span("loss_type"), "loss_type: %s of DPOTrainer is not modelled; %s are", l, strings.Join(modelledLosses, ", "))
			return
		}
	}
	if len(losses) != 1 {
		s.Errs.Addf(a.Span("loss_type"), "loss_type: the sum of %d losses of DPOTrainer is not modelled; one is, such as sigmoid", len(losses))
		return
	}
	a.values["loss_type"] = losses[0]
}
