package spec

import (
	"slices"
	"strings"
)

// grpoLosses are the values of loss_type whose loss specs/trainers/grpo.yaml computes.
var grpoLosses = []string{"grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo"}

// grpo completes and checks the arguments of GRPOTrainer (GRPOConfig.__post_init__).
func (s *Spec) grpo(d *decoder, a *Arguments) {
	if s.Trainer.GRPO == nil {
		return
	}
	s.ownLoss(d, a)
	batch, steps := a.Int("per_device_train_batch_size"), a.Int("gradient_accumulation_steps")
	switch n, together := a.Int("steps_per_generation"), a.Int("generation_batch_size"); {
	case n > 0 && together > 0:
		s.Errs.Addf(a.Span("generation_batch_size"), "generation_batch_size and steps_per_generation exclude each other, GRPOConfig says")
		return
	case together%batch != 0:
		s.Errs.Addf(a.Span("generation_batch_size"), "generation_batch_size must be a multiple of per_device_train_batch_size, %d, not %d", batch, together)
		return
	case together > 0:
		a.values["steps_per_generation"] = together / batch
	case n == 0:
		a.values["steps_per_generation"] = steps
	}
	if every := s.Trainer.GenerateEvery(); every%steps != 0 && steps%every != 0 {
		s.Errs.Addf(a.Span("steps_per_generation"), "steps_per_generation times num_iterations, %d, and gradient_accumulation_steps, %d, are modelled where one is a multiple of the other", every, steps)
	}
	if n := s.BatchStep(); batch%n != 0 && s.Parallel == nil {
		s.Errs.Addf(a.Span("per_device_train_batch_size"), "GRPOTrainer refuses this batch size: completions that are generated together, %d of one process, must be a multiple of num_generations, %d; write a multiple of %d", s.Trainer.Generated(), a.Int("num_generations"), n)
	}
	switch c, n := a.Int("max_completion_length"), a.Int("pad_to_multiple_of"); {
	case c == 0:
		s.Errs.Addf(a.Span("max_completion_length"), "max_completion_length must be a number: it says how long the completions are that the loss is of")
	case n > 0 && c%n != 0:
		s.Errs.Addf(a.Span("pad_to_multiple_of"), "pad_to_multiple_of must divide max_completion_length, %d: completions of another length are not modelled", c)
	}
	refuse := func(name, why string, is bool) {
		if is {
			s.Errs.Addf(a.Span(name), "%s: %s is not modelled", name, why)
		}
	}
	refuse("cast_lm_head_to_fp32", "an output embedding in float32", a.Bool("cast_lm_head_to_fp32"))
	refuse("top_entropy_quantile", "a mask of the tokens of high entropy", a.Number("top_entropy_quantile") < 1)
	refuse("entropy_coef", "the entropy as a part of the loss", a.Number("entropy_coef") != 0)
	refuse("use_adaptive_entropy", "the entropy as a part of the loss", a.Bool("use_adaptive_entropy"))
	refuse("eval_strategy", "what GRPOTrainer generates in evaluations", a.Text("eval_strategy") != "" && a.Text("eval_strategy") != "no")
	if l := a.Text("loss_type"); !slices.Contains(grpoLosses, l) {
		s.Errs.Addf(a.Span("loss_type"), "loss_type: %s of GRPOTrainer is not modelled; %s are", l, strings.Join(grpoLosses, ", "))
	}
}

// BatchStep is of what the batch size of a process must be a multiple.
func (s *Spec) BatchStep() int64 {
	if p := s.Parallel; p != nil && p.PP.Set {
		return max(p.Microbatches.V, 1)
	}
	if s.Trainer == nil || s.Trainer.GRPO == nil || s.Trainer.Args().Int("generation_batch_size") > 0 {
		return 1
	}
	together := s.Trainer.Args().Int("steps_per_generation") * s.processes()
	n := max(s.Trainer.Args().Int("num_generations"), 1)
	common := n
	for rest := together; rest > 0; {
		common, rest = rest, common%rest
	}
	return n / common
}

// processes is how many processes train.
func (s *Spec) processes() int64 {
	if p := s.Parallel; p != nil {
		return max(p.DDP.V, p.FSDP.V, 1)
	}
	return 1
}

// Generated is how many completions GRPOTrainer generates together.
func (t *Trainer) Generated() int64 {
	return t.Args().Int("per_device_train_batch_size") * t.Args().Int("steps_per_generation")
}

// GenerateEvery is for how many batches it generates.
func (t *Trainer) GenerateEvery() int64 {
	return t.Args().Int("steps_per_generation") * t.Args().Int("num_iterations")
}

// ScoresOld reports whether log-probabilities of completions are computed when they are
// generated, as another step than the one that follows trains on them, too, or vLLM generates.
func (t *Trainer) ScoresOld() bool {
	a := t.Args()
	return a.Int("gradient_accumulation_steps")%t.GenerateEvery() != 0 || a.Bool("use_vllm") && a.Bool("vllm_importance_sampling_correction")
}
