package spec

// Teacher is a model that a job's own model learns from: it is in eval mode,
// runs without gradients, and no optimizer steps it. Its loss, instead of the
// student's own, is what the step goes back from: of out and of teacher_out.
type Teacher struct {
	Model
	Temperature Number `yaml:"temperature" min:"0" default:"2" doc:"by which both logits are divided"`
	Weight      Number `yaml:"weight" min:"0" max:"1" default:"0.5" doc:"weight of the divergence in the loss; the model's own loss has 1 - weight"`
}

// TeacherName is what the teacher is called in a step.
const TeacherName = "teacher"

// TeacherOut is what the teacher's output is called in a step.
const TeacherOut = "teacher_out"

// distillation returns the entries of the loss: those of the teacher's section,
// or the divergence of both distributions, weighted against the model's own
// loss (Hinton, Vinyals, Dean: Distilling the Knowledge in a Neural Network).
func (s *Spec) distillation(own *Value) []*Value {
	if s.TeachesOtherwise() {
		return lossEntries(s.root.Get("teacher").Get("loss"))
	}
	t := s.Teacher
	over := func(op, of, name string) *Value {
		soft := mapping(pair("div", sequence(word(of), float(t.Temperature.V))))
		return mapping(pair(op, integer(-1)), pair("inputs", sequence(soft)), pair("name", word(name)))
	}
	scaled := func(of string, by float64) *Value { return mapping(pair("mul", sequence(word(of), float(by)))) }
	soft := scaled("soft", t.Weight.V*t.Temperature.V*t.Temperature.V)
	hard := lossEntries(own)
	out := append(hard,
		over("softmax", TeacherOut, "wanted"),
		over("log_softmax", "out", "given"),
		mapping(pair("kl_div", mapping(pair("reduction", word("batchmean")))), pair("inputs", sequence(word("given"), word("wanted"))), pair("name", word("soft"))),
	)
	if len(hard) == 0 {
		return append(out, named(soft))
	}
	return append(out, named(mapping(pair("add", sequence(soft, scaled("loss", 1-t.Weight.V))))))
}

// TeachesOtherwise reports whether the teacher's section has a loss of its own.
func (s *Spec) TeachesOtherwise() bool {
	return s.Teacher != nil && s.root.Get("teacher").Get("loss") != nil
}
