package graph

import (
	"slices"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// megatronStages configures the pipeline of Megatron's loop.
func (el *building) megatronStages(m *program.Megatron, st *spec.MegatronStage) {
	a := el.spec.Trainer.Args()
	length := a.Int("seq_length")
	if tp := a.Int("tensor_model_parallel_size"); tp > 1 && a.Bool("sequence_parallel") {
		length /= tp
	}
	dtype := tensor.Float32
	switch {
	case a.Bool("bf16"):
		dtype = tensor.BFloat16
	case a.Bool("fp16"):
		dtype = tensor.Float16
	}
	m.Pipeline = &program.MegatronPipeline{
		Ranks: int(st.Ranks), Rank: int(st.Rank), Chunks: len(st.Layers), Microbatches: int(m.Accumulation), Group: int(st.Group),
		Overlap: st.Overlap, Flush: st.Flush, Reduces: a.Bool("overlap_grad_reduce") && !a.Bool("no_align_grad_reduce"),
		Sent: program.Boundary{Layout: tensor.Contiguous(tensor.D(length, a.Int("micro_batch_size"), a.Int("hidden_size"))), DType: dtype},
	}
	if !a.Bool("untie_embeddings_and_output_weights") {
		m.Tied = tiedOfMegatron
	}
}

// tiedOfMegatron are patterns of the table of tokens, of which the last stage of a pipeline has
// a copy.
var tiedOfMegatron = program.Patterns{"*.embedding.word_embeddings_weight", "*.output_layer.weight"}

// megatronSchedule puts the schedule of Megatron's pipeline in the place of a microbatch.
func (el *building) megatronSchedule() {
	m := el.job.Parallel.Megatron
	if m == nil || m.Pipeline == nil {
		return
	}
	pl, step := m.Pipeline, el.job.Step
	is := func(kind program.StmtKind) func(program.Stmt) bool {
		return func(s program.Stmt) bool { return s.Kind == kind }
	}
	from, to := slices.IndexFunc(step.Body, is(program.Batch)), slices.IndexFunc(step.Body, is(program.Backward))
	input := func(name string) int {
		return slices.IndexFunc(el.job.Inputs, func(in program.Input) bool { return in.Name == name })
	}
	names := []string{"tokens", "labels", "attention_mask", "position_ids"} // of a chunk's forward
	for _, name := range names {
		pl.Inputs = append(pl.Inputs, input(name))
	}
	pl.Mask = slices.Index(names, "attention_mask")
	pl.LossMask = input("loss_mask")
	for _, f := range el.job.Aux.Methods {
		switch f.Name {
		case "forward_step_calc_loss":
			pl.Loss = f
		case "grad_scale_func":
			pl.Scale = f
		case "scale_auxiliary_losses":
			pl.Auxiliary = f
		}
	}
	losses := slices.Index(step.Slots, "forward_data_store")
	step.Body = slices.Replace(step.Body, from, to+1, program.Stmt{Kind: program.ScheduleStep, Targets: []int{losses}, Line: step.Body[from].Line})
}
