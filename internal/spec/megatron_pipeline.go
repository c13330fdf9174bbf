package spec

import "strconv"

// MegatronStage is what the process of a job of Megatron has of its pipeline, and how it goes
// through it.
type MegatronStage struct {
	Ranks, Rank int64   // pipeline-parallel processes; the one that is planned
	Layers      []int64 // of each model chunk of this process; there are several with virtual stages
	before      []int64 // layers of the model before each of them
	Group       int64   // microbatches in a row through one chunk
	Overlap     bool    // overlap_p2p_comm: what is sent and received is waited for later
	Flush       bool    // overlap_p2p_comm_warmup_flush
}

// First reports whether the process has the embedding, and Last whether it computes the loss.
func (s *MegatronStage) First() bool { return s.Rank == 0 }
func (s *MegatronStage) Last() bool  { return s.Rank == s.Ranks-1 }

// PipelineRank is the argument that says which stage of Megatron's pipeline is planned.
const PipelineRank = "pipeline_model_parallel_rank"

// The arguments of pipeline parallelism.
const (
	pipelineSize    = "pipeline_model_parallel_size"
	pipelineLayout  = "pipeline_model_parallel_layout"
	layersOfVirtual = "num_layers_per_virtual_pipeline_stage"
	virtualStages   = "num_virtual_stages_per_pipeline_rank"
	firstLayers     = "decoder_first_pipeline_num_layers"
	lastLayers      = "decoder_last_pipeline_num_layers"
	countEmbedding  = "account_for_embedding_in_pipeline_split"
	countLoss       = "account_for_loss_in_pipeline_split"
	groupSize       = "microbatch_group_size_per_virtual_pipeline_stage"
	noOverlap       = "no_overlap_p2p_communication"
	overlapFlush    = "overlap_p2p_communication_warmup_flush"
)

// megatronPipelined reports whether the arguments cut the model into stages.
func (a *Arguments) megatronPipelined() bool { return a.Int(pipelineSize) > 1 }

// virtual is how many stages a process has (validate_args).
func (a *Arguments) virtual() int64 {
	switch {
	case a.Int(virtualStages) > 0:
		return a.Int(virtualStages)
	case a.Int(layersOfVirtual) > 0:
		return max(a.counted()/a.Int(pipelineSize)/a.Int(layersOfVirtual), 1)
	}
	return 1
}

// counted is how many layers the stages share, with those that the embedding and the loss
// are counted as.
func (a *Arguments) counted() int64 {
	n := a.Int("num_layers")
	if a.Bool(countEmbedding) {
		n++
	}
	if a.Bool(countLoss) {
		n++
	}
	return n
}

// uneven reports whether the first or the last stage has layers of its own number.
func (a *Arguments) uneven() bool { return a.Int(firstLayers) > 0 || a.Int(lastLayers) > 0 }

// layersOfRank is how many layers a pipeline-parallel process has (get_num_layers_to_build in
// megatron/core/transformer/transformer_block.py), with those that embedding and loss are
// counted as; rest is how many are left over where processes cannot have equally many.
func (a *Arguments) layersOfRank(rank int64) (n, rest int64) {
	size := a.Int(pipelineSize)
	if !a.uneven() {
		return a.counted() / size, a.counted() % size
	}
	left, ranks := a.Int("num_layers"), size
	for _, name := range []string{firstLayers, lastLayers} {
		if k := a.Int(name); k > 0 {
			left, ranks = left-k, ranks-1
		}
	}
	switch {
	case ranks > 0:
		n, rest = left/ranks, left%ranks
	default:
		rest = left
	}
	if k := a.Int(firstLayers); k > 0 && rank == 0 {
		n = k
	}
	if k := a.Int(lastLayers); k > 0 && rank == size-1 {
		n = k
	}
	return n, rest
}

// layersOfChunk is how many layers a model chunk of a pipeline-parallel process has; the
// chunks of all processes are in the order of the layers (get_transformer_layer_offset in
// megatron/core/transformer/transformer_layer.py).
func (a *Arguments) layersOfChunk(rank, chunk int64) int64 {
	n, _ := a.layersOfRank(rank)
	n /= a.virtual()
	if a.Bool(countEmbedding) && rank == 0 && chunk == 0 {
		n--
	}
	if a.Bool(countLoss) && rank == a.Int(pipelineSize)-1 && chunk == a.virtual()-1 {
		n--
	}
	return n
}

// of is what a list has, of an item for each layer of the model, of the layers of the stage.
func (s *MegatronStage) of(layers []any) []any {
	var out []any
	for k, n := range s.Layers {
		from := min(max(s.before[k], 0), int64(len(layers)))
		out = append(out, layers[from:min(from+max(n, 0), int64(len(layers)))]...)
	}
	return out
}

// MegatronStage is the stage of the planned process; nil: it has the whole model.
func (t *Trainer) MegatronStage() *MegatronStage {
	if t == nil || t.Megatron == nil || t.Megatron.Table == nil || !t.Megatron.megatronPipelined() {
		return nil
	}
	a := &t.Megatron.Arguments
	s := &MegatronStage{Ranks: a.Int(pipelineSize), Rank: a.Int(PipelineRank), Group: a.Int(pipelineSize)}
	chunks, layers := a.virtual(), int64(0)
	for k := range chunks {
		for rank := range s.Ranks {
			n := a.layersOfChunk(rank, k)
			if rank == s.Rank {
				s.Layers, s.before = append(s.Layers, n), append(s.before, layers)
			}
			layers += n
		}
	}
	if chunks > 1 {
		s.Overlap, s.Flush = !a.Bool(noOverlap), a.Bool(overlapFlush)
		if k := a.Int(groupSize); k > 0 {
			s.Group = k
		}
	}
	return s
}

// megatronPipeline reports what Megatron refuses of the arguments of a pipeline that n
// microbatches go through.
func (s *Spec) megatronPipeline(a *Arguments, n int64) {
	size := a.Int(pipelineSize)
	if rank := a.Int(PipelineRank); rank >= size {
		s.Errs.Addf(a.Span(PipelineRank), "%s, %d, must be less than %s, %d", PipelineRank, rank, pipelineSize, size)
		return
	}
	if size == 1 {
		return
	}
	if a.Has(pipelineLayout) {
		s.Errs.Addf(a.Span(pipelineLayout), "%s is not modelled; %s, %s and %s are", pipelineLayout, virtualStages, firstLayers, lastLayers)
		return
	}
	switch given := a.Int(layersOfVirtual) > 0; {
	case given && a.Int(virtualStages) > 0:
		s.Errs.Addf(a.Span(virtualStages), "%s and %s exclude each other, Megatron says", layersOfVirtual, virtualStages)
		return
	case given && a.uneven():
		s.Errs.Addf(a.Span(layersOfVirtual), "%s and %s need %s, not %s, Megatron says", firstLayers, lastLayers, virtualStages, layersOfVirtual)
		return
	case given && a.counted()/size%a.Int(layersOfVirtual) != 0:
		s.Errs.Addf(a.Span(layersOfVirtual), "%s, %d, must divide the layers of a stage, %d", layersOfVirtual, a.Int(layersOfVirtual), a.counted()/size)
		return
	}
	if a.uneven() && (a.Bool(countEmbedding) || a.Bool(countLoss)) {
		s.Errs.Addf(a.Span(firstLayers), "%s and %s exclude %s and %s, Megatron says", firstLayers, lastLayers, countEmbedding, countLoss)
		return
	}
	chunks := a.virtual()
	for rank := range size {
		layers, rest := a.layersOfRank(rank)
		what := "num_layers"
		if a.counted() > a.Int("num_layers") {
			what = "num_layers, with the embedding and the loss that are counted as layers"
		}
		switch {
		case rest != 0 && a.uneven():
			s.Errs.Addf(a.Span("num_layers"), "num_layers without those of the first and the last stage must be divided equally among the others: %s left", Plural(int(rest), "layer"))
			return
		case rest != 0:
			s.Errs.Addf(a.Span("num_layers"), "%s, %d, must be a multiple of %s, %d", what, a.counted(), pipelineSize, size)
			return
		case layers%chunks != 0:
			s.Errs.Addf(a.Span(virtualStages), "%s, %d, must divide the layers of a stage, %d", virtualStages, chunks, layers)
			return
		case layers == 0:
			s.Errs.Addf(a.Span(pipelineSize), "%s: %d stages of %d layers leave a stage without any", pipelineSize, size*chunks, a.Int("num_layers"))
			return
		}
	}
	if chunks > 1 {
		s.megatronVirtual(a, n)
	}
}

// megatronCheckpoints are the modules that full recomputation checkpoints: the first n layers
// of each model chunk, or all; nil: those that the preset names.
func (t *Trainer) megatronCheckpoints(n int64, block bool) []string {
	var out []string
	add := func(prefix string, layers int64) {
		if block {
			layers = min(layers, n)
		}
		for i := range layers {
			out = append(out, prefix+"layers."+strconv.FormatInt(i, 10))
		}
	}
	st := t.MegatronStage()
	switch {
	case st != nil:
		for k, layers := range st.Layers {
			add("chunks."+strconv.Itoa(k)+".", layers)
		}
	case block:
		add("", t.Megatron.Int("num_layers"))
	}
	return out
}

// megatronVirtual reports what Megatron refuses of virtual stages
// (forward_backward_pipelining_with_interleaving).
func (s *Spec) megatronVirtual(a *Arguments, n int64) {
	size, group := a.Int(pipelineSize), a.Int(pipelineSize)
	if a.Has(groupSize) {
		group = a.Int(groupSize)
	}
	at := a.Span("global_batch_size")
	switch rest := n % max(group, 1); {
	case a.Bool(noOverlap) && size <= 2:
		s.Errs.Addf(a.Span(noOverlap), "%s with virtual stages needs %s greater than 2, Megatron says", noOverlap, pipelineSize)
	case a.Bool(noOverlap) && a.Bool(overlapFlush):
		s.Errs.Addf(a.Span(overlapFlush), "%s excludes %s, Megatron says", overlapFlush, noOverlap)
	case group < size || group > n:
		s.Errs.Addf(at, "with virtual stages %s, %d, must be at least %s, %d, and at most the microbatches of a step, %d", groupSize, group, pipelineSize, size, n)
	case rest > 0 && rest < size:
		s.Errs.Addf(at, "with virtual stages the microbatches of a step, %d, must be a multiple of %s, %d, or leave at least %s, %d, over", n, groupSize, group, pipelineSize, size)
	}
}
