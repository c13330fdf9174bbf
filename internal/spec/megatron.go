package spec

import (
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/trainer"
)

// MegatronPreset is the preset of Megatron's GPT.
const MegatronPreset = "megatron"

// MegatronArguments are the arguments of Megatron's pretrain_gpt.py.
type MegatronArguments struct{ Arguments }

func (a *MegatronArguments) unmarshal(d *decoder, v *Value) {
	a.read(d, v, trainer.Megatron)
	a.Release = ""
}

// gpt2Tokenizer is the tokenizer without tokenizer_type, whose files vocab_file and merge_file
// name, and gpt2Tokens how many tokens it has.
const (
	gpt2Tokenizer = "GPT2BPETokenizer"
	gpt2Tokens    = 50257
)

// megatron gives the sections what the arguments of Megatron say.
func (s *Spec) megatron(a *Arguments) {
	s.keysOfOthers()
	s.megatronChecks(a)
	s.megatronExperts(a)
	refuse := func(name, what string) { s.Errs.Addf(a.Span(name), "%s: %s is not modelled", name, what) }
	if name := "context_parallel_size"; a.Int(name) > 1 {
		s.Errs.Addf(a.Span(name), "%s: %d is not modelled; 1 is", name, a.Int(name))
	}
	if a.Text("optimizer") != "adam" {
		refuse("optimizer", a.Text("optimizer"))
	}
	if a.Bool("bf16") && a.Bool("fp16") {
		s.Errs.Addf(a.Span("fp16"), "bf16 and fp16 exclude each other")
	}
	if given := s.root.Get("parallel"); given != nil {
		s.Errs.Addf(given.Span, "with trainer: megatron, world_size and its other arguments say how a job is spread over GPUs, not parallel")
		return
	}
	micro, model, world := a.Int("micro_batch_size"), a.replica(), a.world()
	if world%model != 0 {
		s.Errs.Addf(a.Span("world_size"), "world_size, %d, must be a multiple of the GPUs of one model, %d: tensor_model_parallel_size times %s", world, model, pipelineSize)
		return
	}
	ranks := world / model
	accumulation := int64(1)
	if global := a.Int("global_batch_size"); global > 0 {
		if accumulation = global / micro / ranks; accumulation < 1 || accumulation*micro*ranks != global {
			s.Errs.Addf(a.Span("global_batch_size"), "global_batch_size, %d, must be a multiple of micro_batch_size (%d) times the data-parallel size (%d)", global, micro, ranks)
			return
		}
	}
	s.megatronPipeline(a, accumulation)
	s.Train.BatchSize = a.integer("micro_batch_size")
	s.Train.GradAccumulation = Integer{V: accumulation, At: a.Span("global_batch_size"), Set: a.Has("global_batch_size")}
	s.Train.Deterministic = a.boolean("deterministic_mode")
	s.Train.Precision = String{V: "fp32", At: a.At, Set: true}
	switch {
	case a.Bool("bf16"):
		s.Train.Precision = String{V: "bf16", At: a.Span("bf16"), Set: true}
	case a.Bool("fp16"):
		s.Train.Precision = String{V: "fp16", At: a.Span("fp16"), Set: true}
	}
	s.Train.Optimizer = megatronOptimizer(a)
	s.megatronRecompute(a)
}

// megatronOptimizer is the optimizer (megatron/core/optimizer/__init__.py): Adam with
// decoupled weight decay, which biases and vectors do not have.
func megatronOptimizer(a *Arguments) *Callee {
	at := a.Span("optimizer")
	args := mapping(pair("lr", float(max(a.Number("lr"), 0))), pair("betas", sequence(float(a.Number("adam_beta1")), float(a.Number("adam_beta2")))),
		pair("eps", float(a.Number("adam_eps"))), pair("weight_decay", float(a.Number("weight_decay"))), pair("fused", boolean(a.fusedAdam())))
	args.place(at)
	return &Callee{Name: String{V: "AdamW", At: at, Set: true}, Arg: args, Groups: undecayed(at)}
}

// fusedAdam reports whether the optimizer is FusedAdam, which Transformer Engine and Apex
// bring, and not torch.optim.AdamW.
func (a *Arguments) fusedAdam() bool {
	return a.Bool("apex") || a.Text("transformer_impl") == trainer.TransformerEngine
}

// megatronRecompute is activation checkpointing (TransformerBlock._checkpointed_forward).
func (s *Spec) megatronRecompute(a *Arguments) {
	const method, layers = "recompute_method", "recompute_num_layers"
	switch a.recomputed() {
	case "":
		return
	case "selective":
		if a.Has(method) {
			s.Errs.Addf(a.Span(method), "recompute_method: Megatron has none with recompute_granularity selective")
		}
		if modules, given := a.words("recompute_modules"); given && !slices.Equal(modules, []string{"core_attn"}) {
			s.Errs.Addf(a.Span("recompute_modules"), "recompute_modules: [%s] is not modelled; core_attn is", strings.Join(modules, ", "))
		}
		return
	}
	at := a.Span("recompute_granularity")
	n := a.Int(layers)
	switch {
	case a.Text(method) == "":
		s.Errs.Addf(at, "recompute_granularity full needs recompute_method, uniform or block, Megatron says")
	case n < 1:
		s.Errs.Addf(at, "recompute_granularity full needs recompute_num_layers, Megatron says")
	case a.Text(method) == "uniform" && n > 1:
		s.Errs.Addf(a.Span(layers), "recompute_num_layers: %d layers in one checkpoint are not modelled; 1 is", n)
	default:
		c := &Checkpoint{At: at, Reentrant: Boolean{V: true, At: at, Set: true}}
		for _, path := range s.Trainer.megatronCheckpoints(n, a.Text(method) == "block") {
			c.Modules = append(c.Modules, String{V: path, At: at, Set: true})
		}
		s.Train.Checkpoint = c
	}
}

// recomputed is the granularity of recomputation; recompute_activations is selective,
// whatever else is said.
func (a *Arguments) recomputed() string {
	if a.Bool("recompute_activations") {
		return "selective"
	}
	return a.Text("recompute_granularity")
}

// words are those of an argument of any number of words, which is a list or a text.
func (a *Arguments) words(name string) (out []string, given bool) {
	v, ok := a.Value(name).(*Value)
	switch {
	case !ok:
		return nil, false
	case v.Kind == List:
		for _, it := range v.Items {
			out = append(out, it.Str)
		}
		return out, true
	}
	return strings.FieldsFunc(v.Str, func(r rune) bool { return strings.ContainsRune(" ,[]\"'", r) }), true
}

// megatronChecks reports what Megatron refuses (validate_args in megatron/training/arguments.py,
// TransformerConfig), and what of the arguments is not modelled.
func (s *Spec) megatronChecks(a *Arguments) {
	tp, heads, te := a.Int("tensor_model_parallel_size"), a.Int("num_attention_heads"), a.Text("transformer_impl") == trainer.TransformerEngine
	multiple := func(name string, n int64, of string, d int64) {
		if d > 0 && n%d != 0 {
			s.Errs.Addf(a.Span(name), "%s, %d, must be a multiple of %s, %d", name, n, of, d)
		}
	}
	const parallel = "tensor_model_parallel_size"
	multiple("num_attention_heads", heads, parallel, tp)
	if a.Value("kv_channels") == nil {
		multiple("hidden_size", a.Int("hidden_size"), "num_attention_heads without kv_channels", heads)
	}
	if a.Bool("group_query_attention") {
		multiple("num_query_groups", a.Int("num_query_groups"), parallel, tp)
		multiple("num_attention_heads", heads, "num_query_groups", a.Int("num_query_groups"))
	}
	if n := a.Int("ffn_hidden_size"); n > 0 {
		multiple("ffn_hidden_size", n, parallel, tp)
	}
	if n := a.Int("padded_vocab_size"); n > 0 {
		multiple("padded_vocab_size", n, parallel, tp)
	}
	if a.Bool("sequence_parallel") {
		multiple("seq_length", a.Int("seq_length"), parallel+" with sequence_parallel", tp)
	}
	if n := a.Int("num_layers"); n > mostLayers {
		s.Errs.Addf(a.Span("num_layers"), "num_layers must be at most %d, not %d", mostLayers, n)
	}
	if n, most := a.Int("seq_length"), a.Int("max_position_embeddings"); most < n {
		s.Errs.Addf(a.Span("max_position_embeddings"), "max_position_embeddings, %d, must be at least seq_length, %d", most, n)
	}
	if n := a.Int(optimizerInstances); n > 1 {
		if !a.Bool("use_distributed_optimizer") {
			s.Errs.Addf(a.Span(optimizerInstances), "%s needs use_distributed_optimizer, Megatron says", optimizerInstances)
		}
		multiple("world_size", a.world(), optimizerInstances+" times the GPUs of one model", n*a.replica())
	}
	if name := "overlap_param_gather"; a.Bool(name) && !(a.Bool("overlap_grad_reduce") && a.Bool("use_distributed_optimizer")) {
		s.Errs.Addf(a.Span(name), "%s needs overlap_grad_reduce and use_distributed_optimizer, Megatron says", name)
	}
	if name := "no_rope_fusion"; a.rotary() && !te && !a.Bool(name) {
		s.Errs.Addf(a.Span(name), "rotary positions without Transformer Engine need no_rope_fusion: true, Megatron says")
	}
	if name := "attention_backend"; te && a.Text(name) == "local" {
		s.Errs.Addf(a.Span(name), "attention_backend: local is of local layers, not of transformer_impl: transformer_engine")
	}
	if name := "loss_scale"; a.Number(name) != 0 {
		s.Errs.Addf(a.Span(name), "loss_scale: a constant scale is not modelled; without it that of fp16 is found")
	}
	if name := "vocab_size"; a.Int("padded_vocab_size") == 0 && !a.Has(name) {
		if t := a.Text("tokenizer_type"); t != "" && t != gpt2Tokenizer {
			s.Errs.Addf(a.Span("tokenizer_type"), "vocab_size or padded_vocab_size is needed: how many tokens %s has is not known", t)
		}
	}
}

// flashAttention reports whether attention of Transformer Engine keeps no scores, which it does
// in 16 bits alone (get_attention_backend in
// transformer_engine/pytorch/attention/dot_product_attention/utils.py).
func (a *Arguments) flashAttention() bool {
	return a.Text("attention_backend") != "unfused" && (a.Bool("bf16") || a.Bool("fp16"))
}

// rotary reports whether positions are rotations.
func (a *Arguments) rotary() bool {
	return a.Text("position_embedding_type") == "rope" || a.Bool("use_rotary_position_embeddings")
}

// MegatronParams are the params of Megatron's model that its arguments give; nil without
// such a trainer.
func (t *Trainer) MegatronParams() map[string]any {
	if t == nil || t.Megatron == nil || t.Megatron.Table == nil {
		return nil
	}
	a := &t.Megatron.Arguments
	given := map[string]any{}
	for _, name := range []string{"num_layers", "hidden_size", "num_attention_heads", "seq_length", "max_position_embeddings", "tensor_model_parallel_size"} {
		given[name] = a.Int(name)
	}
	for _, name := range []string{"ffn_hidden_size", "kv_channels"} {
		given[name] = a.Value(name)
	}
	for _, name := range []string{"rotary_percent", "norm_epsilon", "hidden_dropout", "attention_dropout"} {
		given[name] = a.Number(name)
	}
	for _, name := range []string{"swiglu", "add_qkv_bias", "untie_embeddings_and_output_weights", "apply_query_key_layer_scaling", "sequence_parallel", "deterministic_mode"} {
		given[name] = a.Bool(name)
	}
	given["normalization"], given["position_embedding_type"] = a.Text("normalization"), a.Text("position_embedding_type")
	if a.rotary() {
		given["position_embedding_type"] = "rope"
	}
	given["num_query_groups"] = nil
	if a.Bool("group_query_attention") {
		given["num_query_groups"] = a.Int("num_query_groups")
	}
	given["add_bias_linear"] = !a.Bool("disable_bias_linear")
	given["attention_softmax_in_fp32"] = a.Bool("attention_softmax_in_fp32") || a.Bool("apply_query_key_layer_scaling")
	given["bias_activation_fusion"] = !a.Bool("no_bias_gelu_fusion") && !a.Bool("disable_bias_linear")
	if a.Bool("swiglu") {
		given["bias_activation_fusion"] = !a.Bool("no_bias_swiglu_fusion")
	}
	given["bias_dropout_fusion"] = !a.Bool("no_bias_dropout_fusion")
	given["transformer_impl"], given["attention"] = a.Text("transformer_impl"), "flash"
	if !a.flashAttention() {
		given["attention"] = "unfused"
	}
	given["masked_softmax_fusion"] = a.fusedAdam() && !a.Bool("no_masked_softmax_fusion")
	given["create_attention_mask"] = !a.Bool("no_create_attention_mask_in_dataloader")
	given["padded_vocab_size"] = a.paddedVocabulary()
	given["core_attention_recompute"] = a.recomputed() == "selective"
	a.megatronExpertParams(given)
	if st := t.MegatronStage(); st != nil {
		layers := make([]any, len(st.Layers))
		for k, n := range st.Layers {
			layers[k] = n
		}
		given["stage_layers"], given["pre_process"], given["post_process"] = layers, st.First(), st.Last()
		if all, ok := given["moe_layers"].([]any); ok {
			given["moe_layers"] = st.of(all)
		}
	}
	given["dtype"] = "float32"
	for name, dtype := range map[string]string{"bf16": "bfloat16", "fp16": "float16"} {
		if a.Bool(name) {
			given["dtype"] = dtype
		}
	}
	return given
}

// paddedVocabulary is how many rows the table of tokens has on all GPUs together
// (_vocab_size_with_padding in megatron/training/tokenizer/tokenizer.py).
func (a *Arguments) paddedVocabulary() int64 {
	if n := a.Int("padded_vocab_size"); n > 0 {
		return n
	}
	n := a.Int("vocab_size")
	switch {
	case strings.HasPrefix(a.Text("tokenizer_type"), "Null"):
		n++ // the end of documents
	case a.Text("tokenizer_type") == "" || a.Text("tokenizer_type") == gpt2Tokenizer:
		n = gpt2Tokens // whatever vocab_size says
	}
	multiple := a.Int("make_vocab_size_divisible_by") * a.Int("tensor_model_parallel_size")
	return (n + multiple - 1) / multiple * multiple
}

// optimizerInstances is how many groups of processes have the distributed optimizer each.
const optimizerInstances = "num_distributed_optimizer_instances"

// MegatronBuffers is how parameters and gradients lie in buffers.
type MegatronBuffers struct {
	World, Ranks, ExpertRanks, Bucket, Padded int64
	Distributed                               bool
	TE                                        bool   // layers are Transformer Engine's
	Fused                                     bool   // by kernels of Transformer Engine or Apex
	Grads                                     string // fp32, bf16 or fp16
}

// megatronBuckets is the least size of a bucket, and that of each data-parallel process
// (megatron/training/training.py: get_model).
const megatronBuckets, bucketOfRank = 40000000, 1000000

// MegatronBuffers are those of the arguments.
func (t *Trainer) MegatronBuffers() MegatronBuffers {
	a := &t.Megatron.Arguments
	world := a.world()
	b := MegatronBuffers{World: world, Ranks: max(world/a.replica(), 1), Distributed: a.Bool("use_distributed_optimizer"), Fused: a.fusedAdam(), TE: a.Text("transformer_impl") == trainer.TransformerEngine, Padded: 1, Grads: "fp32"}
	switch {
	case a.Bool("accumulate_allreduce_grads_in_fp32"):
	case a.Bool("bf16") && a.Bool("grad_reduce_in_bf16"):
		b.Grads = "bf16"
	case a.Bool("fp16"):
		b.Grads = "fp16"
	}
	if a.Bool("overlap_grad_reduce") {
		b.Bucket = max(megatronBuckets, bucketOfRank*b.Ranks)
		if n := a.Int("ddp_bucket_size"); n > 0 {
			b.Bucket = n
		}
	}
	if a.Bool("ddp_pad_buckets_for_high_nccl_busbw") {
		b.Padded = 1 << 16
	}
	if ep := a.Int("expert_model_parallel_size"); ep > 1 {
		b.ExpertRanks = max(world/(ep*a.expertTensor()*a.Int(pipelineSize)), 1)
	}
	if n := a.Int(optimizerInstances); b.Distributed && n > 1 {
		b.Ranks, b.ExpertRanks = max(b.Ranks/n, 1), max(b.ExpertRanks/n, min(b.ExpertRanks, 1))
	}
	return b
}

// megatronDivides reports whether batches of n samples divide those of a step, and enough of
// them for a pipeline.
func megatronDivides(given *Value, global, n int64) bool {
	size := func(name string) int64 { return max(undecoded(trainer.Megatron, given, name), 1) }
	stages := size(pipelineSize)
	copies := max(size("world_size")/(size("tensor_model_parallel_size")*stages), 1)
	return n > 0 && global%(n*copies*stages) == 0
}

// megatronSettings are the arguments of Megatron that say what a key of train says. If a batch
// of another size does not divide global_batch_size, it is accumulated as often as before.
func megatronSettings(_, given *Value, key, value string) ([]Setting, bool) {
	switch key {
	case "batch_size":
		ss := []Setting{{"micro_batch_size", value}}
		global, micro := undecoded(trainer.Megatron, given, "global_batch_size"), undecoded(trainer.Megatron, given, "micro_batch_size")
		switch n, err := strconv.ParseInt(value, 10, 64); {
		case micro == 0 || err != nil: // expressions
			return nil, false
		case global > 0 && !megatronDivides(given, global, n):
			ss = append(ss, Setting{"global_batch_size", strconv.FormatInt(global/micro*n, 10)})
		}
		return ss, true
	case "clip_grad_norm":
		return []Setting{{"clip_grad", value}}, true
	case "deterministic":
		return []Setting{{"deterministic_mode", value}}, true
	case "checkpoint":
		return []Setting{{"recompute_granularity", "full"}, {"recompute_method", "uniform"}, {"recompute_num_layers", "1"}}, value == "true"
	case "precision":
		switch canonical(value, precisionWords()) {
		case "fp32":
			return []Setting{{"bf16", "false"}, {"fp16", "false"}}, true
		case "bf16":
			return []Setting{{"bf16", "true"}, {"fp16", "false"}}, true
		case "fp16":
			return []Setting{{"bf16", "false"}, {"fp16", "true"}}, true
		}
	}
	return nil, false
}
