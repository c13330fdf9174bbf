package spec

import (
	"slices"
	"strconv"

	"github.com/memplan/memplan/internal/trainer"
)

// TorchtitanPreset is the preset of torchtitan's model.
const TorchtitanPreset = "torchtitan"

// TorchtitanArguments are the keys of torchtitan's configuration files.
type TorchtitanArguments struct{ Arguments }

func (a *TorchtitanArguments) unmarshal(d *decoder, v *Value) {
	a.read(d, v, trainer.Torchtitan)
	a.Release = ""
}

// torchtitan gives the sections what the arguments of torchtitan say.
func (s *Spec) torchtitan(d *decoder, a *Arguments) {
	s.keysOfOthers()
	for _, name := range []string{"data_parallel_replicate", "tensor_parallel", "pipeline_parallel", "context_parallel"} {
		if name = "parallelism." + name + "_degree"; a.Int(name) > 1 {
			s.Errs.Addf(a.Span(name), "%s: %d is not modelled; 1 is", name, a.Int(name))
		}
	}
	if name := "optimizer.early_step_in_backward"; a.Bool(name) {
		s.Errs.Addf(a.Span(name), "%s is not modelled; without trainer, train: {optimizer_in_backward: true} is", name)
	}
	if s.Model != nil && s.Model.Preset.V == TorchtitanPreset {
		const name, flavor = "model.name", "model.flavor"
		switch x := a.Text(flavor); {
		case a.Text(name) != "llama3":
			s.Errs.Addf(a.Span(name), "%s %q is not modelled; llama3 is, and so is a model of the spec's own", name, a.Text(name))
		case !slices.Contains(trainer.TorchtitanFlavors, x):
			s.Errs.Unknown(a.Span(flavor), flavor, x, trainer.TorchtitanFlavors)
		}
	}
	ranks := s.torchtitanRanks(a)
	if ranks == 0 {
		return
	}
	local, global := a.Int("training.local_batch_size"), a.Int("training.global_batch_size")
	accumulation := int64(1)
	if at := a.Span("training.global_batch_size"); global >= 0 {
		if accumulation = global / local / ranks; accumulation < 1 || accumulation*local*ranks != global {
			s.Errs.Addf(at, "training.global_batch_size must be a multiple of training.local_batch_size (%d) times the number of GPUs (%d), not %d", local, ranks, global)
			return
		}
	}
	s.Train.BatchSize = a.integer("training.local_batch_size")
	s.Train.GradAccumulation = Integer{V: accumulation, At: a.Span("training.global_batch_size"), Set: global >= 0}
	s.Train.Loop.V = "flat"
	s.Train.Deterministic = a.boolean("training.deterministic")
	s.Train.Optimizer = torchtitanOptimizer(a)
	s.Train.Checkpoint = s.torchtitanCheckpoint(a)
	s.Train.Precision = String{V: "fp32", At: a.Span("training.mixed_precision_param"), Set: true}
	if ranks == 1 && a.Text("training.mixed_precision_param") == "bfloat16" {
		s.Train.Precision.V = "amp-bf16"
	}
	if !s.Data.Input.Set { // batch_generator binds the next batch before it is moved
		s.Data.Input.V = "rebind"
	}
	s.torchtitanParallel(d, a, ranks)
}

// torchtitanRanks is how many GPUs there are, over which FSDP shards the model; 0 if that is
// a mistake.
func (s *Spec) torchtitanRanks(a *Arguments) int64 {
	const shard = "parallelism.data_parallel_shard_degree"
	if given := s.root.Get("parallel"); given != nil && given.Kind == Map {
		for _, p := range given.Pairs {
			if p.Key.Str != "fsdp" {
				s.Errs.Addf(p.Key.Span, "with trainer: torchtitan, parallel has fsdp alone, the number of GPUs, not %s", p.Key.Str)
				return 0
			}
		}
	}
	world := int64(1)
	if s.Parallel != nil && s.Parallel.FSDP.Set {
		world = s.Parallel.FSDP.V
	}
	switch n := a.Int(shard); {
	case n == 0:
		s.Errs.Addf(a.Span(shard), "%s must be -1 or at least 1, not 0", shard)
		return 0
	case n > 0 && world > 1 && n != world:
		s.Errs.Addf(a.Span(shard), "%s is %d, but parallel: {fsdp: %d} says how many GPUs there are; leave one of them out", shard, n, world)
		return 0
	default:
		return max(n, world)
	}
}

// torchtitanParallel is the section parallel (torchtitan/models/llama3/infra/parallelize.py:
// apply_fsdp).
func (s *Spec) torchtitanParallel(d *decoder, a *Arguments, ranks int64) {
	const offload, reshard = "training.enable_cpu_offload", "parallelism.fsdp_reshard_after_forward"
	if ranks == 1 { // fsdp: 1 among them
		if a.Bool(offload) {
			s.Errs.Addf(a.Span(offload), "%s needs FSDP; write parallel: {fsdp: 8} for 8 GPUs", offload)
		}
		s.Parallel = nil
		s.root.drop([]string{"parallel"})
		return
	}
	v := mapping(pair("fsdp", integer(ranks)), pair("param_dtype", word(a.Text("training.mixed_precision_param"))), pair("reduce_dtype", word(a.Text("training.mixed_precision_reduce"))),
		pair("reshard_after_forward", boolean(a.Text(reshard) != "never")), pair("reshard_last", boolean(a.Text(reshard) != "default")),
		pair("cpu_offload", boolean(a.Bool(offload))), pair("meta_device", boolean(true)))
	at := a.Span("parallelism.data_parallel_shard_degree")
	if s.Parallel != nil && s.Parallel.FSDP.Set {
		at = s.Parallel.FSDP.At
	}
	v.place(at)
	s.root.put(word("parallel"), v)
	s.Parallel = &Parallel{At: at}
	d.section(v, s.Parallel, "parallel")
}

// torchtitanOptimizer is the optimizer (torchtitan/components/optimizer.py).
func torchtitanOptimizer(a *Arguments) *Callee {
	how := a.Text("optimizer.implementation")
	args := mapping(pair("lr", float(a.Number("optimizer.lr"))), pair("betas", sequence(float(a.Number("optimizer.beta1")), float(a.Number("optimizer.beta2")))),
		pair("eps", float(a.Number("optimizer.eps"))), pair("weight_decay", float(a.Number("optimizer.weight_decay"))),
		pair("fused", boolean(how == "fused")), pair("foreach", boolean(how == "foreach")))
	at := a.Span("optimizer.name")
	args.place(at)
	return &Callee{Name: String{V: a.Text("optimizer.name"), At: at, Set: true}, Arg: args}
}

// torchtitanCheckpoint is activation checkpointing (_apply_ac_to_transformer_block).
func (s *Spec) torchtitanCheckpoint(a *Arguments) *Checkpoint {
	const mode, option = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
	at := a.Span(mode)
	written := func(words ...string) []String {
		var out []String
		for _, w := range words {
			out = append(out, String{V: w, At: at, Set: true})
		}
		return out
	}
	c := &Checkpoint{At: at} // of the modules that the model names
	switch a.Text(mode) {
	case "none":
		return nil
	case "full":
		return c
	}
	every := "2"
	if v, ok := a.Value(option).(*Value); ok {
		every = v.Str
	}
	if every == "op" { // _save_list
		c.Save, c.Alternate = written("mm", "scaled_dot_product_attention"), written("mm")
		return c
	}
	n, err := strconv.ParseInt(every, 10, 64)
	if err != nil || n < 0 {
		s.Errs.Addf(a.Span(option), "%s must be op or a number n, for every n-th block, not %q", option, every)
		return nil
	}
	c.Every = Integer{V: max(n, 1), At: a.Span(option), Set: true} // 0 is every block, too
	return c
}

// TorchtitanParams are the params of torchtitan's model that its arguments give; nil without
// such a trainer.
func (t *Trainer) TorchtitanParams() map[string]any {
	if t == nil || t.Torchtitan == nil || t.Torchtitan.Table == nil {
		return nil
	}
	a := &t.Torchtitan.Arguments
	return map[string]any{"flavor": a.Text("model.flavor"), "seq": a.Int("training.seq_len")}
}

// torchtitanSettings are the arguments of torchtitan that say what a key of train says. A
// batch of another size is accumulated as often. FSDP has a precision of its own.
func torchtitanSettings(root, given *Value, key, value string) ([]Setting, bool) {
	switch key {
	case "batch_size":
		ss := []Setting{{"training.local_batch_size", value}}
		global, local := undecoded(trainer.Torchtitan, given, "training.global_batch_size"), undecoded(trainer.Torchtitan, given, "training.local_batch_size")
		switch n, err := strconv.ParseInt(value, 10, 64); {
		case global == 0 || local == 0 || err != nil: // expressions
			return nil, false
		case global > 0:
			ss = append(ss, Setting{"training.global_batch_size", strconv.FormatInt(global/local*n, 10)})
		}
		return ss, true
	case "clip_grad_norm":
		return []Setting{{"training.max_norm", value}}, true
	case "deterministic":
		return []Setting{{"training.deterministic", value}}, true
	case "checkpoint":
		mode, ok := map[string]string{"true": "full", "false": "none"}[value]
		return []Setting{{"activation_checkpoint.mode", mode}}, ok
	case "precision":
		to, ok := map[string]string{"amp-bf16": "bfloat16", "fp32": "float32"}[canonical(value, precisionWords())]
		return []Setting{{"training.mixed_precision_param", to}}, ok && root.Get("parallel") == nil
	}
	return nil, false
}
