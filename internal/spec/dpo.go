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
	return t.OwnLoss() && t.Args().Bool("disable_dropout")
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

// ReferenceName is what the reference of DPOTrainer or GRPOTrainer is called in its loop.
const ReferenceName = "reference"

// Reference is the second model of DPOTrainer, and of GRPOTrainer with another beta than 0, which it reads by itself, to the GPU: the
// model as it is before training (DPOTrainer.__init__, create_model_from_path). It is nil
// with adapters, without which the model is its own reference. Its parameters require grad, so
// that autocast keeps their copies for as long as it is on.
func (s *Spec) Reference() *Model {
	t := s.Trainer
	if !t.OwnLoss() || t.GRPO != nil && t.Args().Number("beta") == 0 || s.PEFT != nil || s.Model == nil {
		return nil
	}
	m := *s.Model
	m.Eval = Boolean{V: true, At: m.At}
	m.DType, m.Freeze, m.LoRA, m.Quantize, m.Prune = String{}, nil, nil, nil, nil
	switch l := t.Reads; {
	case l != nil: // from_pretrained does not see with which attention the model was made
		m.Load, m.With, m.Attn = l, m.With.without("attn"), String{V: "sdpa"}
	default: // the model is given by its name
		own := *m.Load
		own.Convert, m.Load = nil, &own
	}
	return &m
}

// modelInit reads model_init_kwargs: the keywords with which DPOTrainer reads its reference.
// Without them, and with load, the model and the reference are read with those of load.
func (s *Spec) modelInit(d *decoder, a *Arguments) {
	v, given := a.Value("model_init_kwargs").(*Value)
	if s.Model == nil || s.Model.Load != nil && !given {
		return
	}
	l := new(Load)
	d.section(v, l, "model_init_kwargs")
	if !l.DType.Set { // the defaults of create_model_from_path
		l.DType.V = "float32"
	}
	if l.DeviceMap == nil {
		l.DeviceMap = word("auto")
	}
	s.Trainer.Reads = l
}

// ownLoss checks what stands beside a trainer that computes the loss outside of the model.
func (s *Spec) ownLoss(d *decoder, a *Arguments) {
	name := "trainer: " + s.Trainer.Key()
	s.modelInit(d, a)
	switch p := s.Parallel; {
	case s.PEFT != nil && len(s.PEFT.Kernels) > 0:
		s.Errs.Addf(s.PEFT.At, "peft.kernels with %s is not modelled; leave out kernels", name)
	case s.PEFT != nil:
	case s.LoRA != nil:
		s.Errs.Addf(s.LoRA.At, "lora with %s is not modelled; write peft: {lora: {...}}, whose model without its adapters is the reference", name)
	case p != nil && p.FSDP.Set:
		s.Errs.Addf(p.FSDP.At, "fsdp with %s is modelled with peft alone: without adapters there is a second model, the reference, which is sharded, too", name)
	case p != nil && p.DDP.Set:
		s.Errs.Addf(p.DDP.At, "ddp with %s is modelled with peft alone: without adapters there is a second model, the reference", name)
	}
	if a.Bool("sync_ref_model") {
		s.Errs.Addf(a.Span("sync_ref_model"), "sync_ref_model: the update of the reference is not modelled, and with adapters %s refuses it; sync_ref_model: false is", strings.TrimSuffix(a.Table.Name, "Config")+"Trainer")
	}
	if a.Bool("use_liger_kernel") {
		s.Errs.Addf(a.Span("use_liger_kernel"), "use_liger_kernel: the fused loss of %s is not modelled; use_liger_kernel: false is", strings.TrimSuffix(a.Table.Name, "Config")+"Trainer")
	}
}

// dpo completes and checks the arguments of DPOTrainer.
func (s *Spec) dpo(d *decoder, a *Arguments) {
	if s.Trainer.DPO == nil {
		return
	}
	s.ownLoss(d, a)
	if a.Bool("precompute_ref_log_probs") {
		s.Errs.Addf(a.Span("precompute_ref_log_probs"), "precompute_ref_log_probs: the passes over the data before training are not modelled; precompute_ref_log_probs: false is")
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
