package spec

// Eval is an evaluation between training steps: a function that puts the models
// into eval mode, runs some batches and puts them back.
type Eval struct {
	At        Span     `yaml:"-"`
	Every     Integer  `yaml:"every" min:"1" max:"1000000000" default:"1" doc:"after every n-th training step"`
	AtStart   Boolean  `yaml:"at_start" doc:"an evaluation before the first step, too, such as a sanity check"`
	BatchSize Integer  `yaml:"batch_size" min:"1" max:"2147483647" doc:"samples of one batch; by default train.batch_size"`
	Batches   Integer  `yaml:"batches" min:"1" max:"100000" default:"2" doc:"batches of one evaluation; from the second on, the names of the one before are still alive"`
	Context   String   `yaml:"context" enum:"no_grad|inference_mode|grad" words:"inference: inference_mode" default:"no_grad" doc:"grad: gradients are recorded, as if torch.no_grad was forgotten"`
	TrainMode Boolean  `yaml:"train_mode" doc:"the models stay in training mode, as if model.eval() was forgotten"`
	EMA       Boolean  `yaml:"ema" doc:"the averaged weights of train.ema are evaluated"`
	Keep      *Value   `yaml:"keep" doc:"values that a list holds until the evaluation ends: a name, {of, detach, item, to, in, sum}, or several"`
	Step      []*Entry `yaml:"step" doc:"the statements of one batch, which is made first where they take inputs and do not say batch; by default the forward pass and the loss"`
}

// EvalStep returns the statements of one batch of an evaluation, those of the
// spec or what the keys of eval stand for, with the given loss.
func (s *Spec) EvalStep(loss *Value) []*Entry {
	d := &decoder{errs: s.Errs, env: s.Env}
	if s.Eval.Step != nil {
		return append(s.Eval.Step[:len(s.Eval.Step):len(s.Eval.Step)], d.entries(keeps(s.Eval.Keep))...)
	}
	model := "model"
	if s.Eval.EMA.V {
		model = EMAName
	}
	out := sequence(word(HeadBatch), forwardOf(model, "out"))
	out.Items = append(out.Items, lossEntries(loss)...)
	out.Items = append(out.Items, keeps(s.Eval.Keep).Items...)
	return d.entries(out)
}
