package importer

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// sharding is how the files spread the job over GPUs.
type sharding struct {
	fsdp      *spec.Value // its configuration
	deepspeed *spec.Value // asks for DeepSpeed
	of        *file       // that both are in
	two       bool        // it is FSDP2, whatever the configuration says
}

// assumedProcesses is how many GPUs a job has that is spread over several, and
// whose files do not say how many.
const assumedProcesses = 2

// launch writes the section parallel.
func (j *job) launch() {
	if j.format.Trainer == "megatron" { // whose arguments say it
		return
	}
	s, world := j.sharding(), j.opts.Processes
	if acc := j.beside[accelerate]; acc != nil {
		world = acc.launched(j, &s, world)
	}
	if cloud := j.beside[axolotlCloud]; cloud != nil {
		if n := cloud.gpus(j); world == 0 {
			world = n
		}
	}
	if world == 0 {
		world = j.world
	}
	if ds := j.beside[deepSpeed]; ds != nil {
		s.deepspeed, s.of = ds.doc.Root, ds
	}
	if world == 0 && (s.fsdp != nil || s.deepspeed != nil) {
		world = assumedProcesses
		at := s.deepspeed
		if at == nil {
			at = s.fsdp
		}
		s.of.assume(j, at, "%d processes, each on a GPU of its own: the files do not say how many; --num-processes does", world)
	}
	if s.fsdp != nil && s.deepspeed == nil {
		s.of.checkpoints(j, s.fsdp)
	}
	if world > 1 || s.deepspeed != nil {
		j.loadedToHost()
	}
	n := strconv.FormatInt(world, 10)
	switch {
	case s.deepspeed != nil && s.of.engine(j, s.deepspeed, n):
	case s.deepspeed != nil:
		if world > 1 {
			j.put("parallel.ddp", n, nil)
		}
		text := "true"
		if s.deepspeed.Kind == spec.Str {
			text = quote(s.deepspeed.Str)
		}
		j.out.put("parallel.deepspeed", text, s.of.from(s.deepspeed))
		j.keys["parallel.deepspeed"] = "deepspeed"
		s.of.zero(j, s.deepspeed)
	case s.fsdp != nil && j.out.get("peft") != nil:
		s.of.doubt(j, s.fsdp, "fsdp: FSDP with adapters; each process is planned with all parameters, as with DistributedDataParallel")
		j.out.put("parallel.ddp", n, s.of.from(s.fsdp))
	case s.fsdp != nil:
		j.out.put("parallel.fsdp", n, s.of.from(s.fsdp))
		s.of.sharded(j, s.fsdp)
		j.withoutEvaluation(s)
	case world > 1:
		j.put("parallel.ddp", n, nil)
		if v := j.get("ddp_find_unused_parameters"); given(v) {
			j.out.put("parallel.find_unused_parameters", "true", j.from(v))
		}
		if v := j.get("ddp_bucket_cap_mb"); v != nil {
			j.out.put("parallel.bucket_cap_mb", flow(v), j.from(v))
		}
	}
}

// loadedToHost takes device_map: auto away, which TRL does not give in one of several processes.
func (j *job) loadedToHost() {
	if load := j.out.get("model.load"); load != nil && load.says("device_map") == "auto" {
		load.kids = slices.DeleteFunc(load.kids, func(c *node) bool { return c.key == "device_map" })
	}
}

// withoutEvaluation takes the evaluation away, which is not modelled under FSDP.
func (j *job) withoutEvaluation(s sharding) {
	t := j.out.get("trainer")
	if t == nil || t.get("eval_dataset") == nil {
		return
	}
	s.of.doubt(j, s.fsdp, "fsdp: evaluations under FSDP; planned without")
	drop := func(n *node) {
		n.kids = slices.DeleteFunc(n.kids, func(c *node) bool { return c.key == "eval_dataset" || c.key == "eval_strategy" })
	}
	drop(t)
	if args := t.get(j.format.Trainer); args != nil {
		drop(args)
	}
}

// sharding is what the file of the job itself says of it.
func (j *job) sharding() sharding {
	s := j.spread
	if s.of != nil {
		return s
	}
	s.of = &j.file
	if v := j.get("deepspeed"); given(v) {
		s.deepspeed = v
	}
	v := j.get("fsdp")
	if v != nil && !given(v) && j.format != axolotl { // transformers reads fsdp_config with it alone
		return s
	}
	if conf := j.get("fsdp_config"); given(conf) {
		s.fsdp = conf
	} else if given(v) {
		s.fsdp = v
	}
	return s
}

// legacyFSDP is what words of TrainingArguments' fsdp say, as before transformers 5: how
// parameters are sharded, "" where they do not say it, and whether they are offloaded
// (_apply_legacy_fsdp_to_config of training_args.py).
func (f *file) legacyFSDP(j *job) (strategy string, offload bool, at *spec.Value) {
	at = j.get("fsdp")
	if j.format == axolotl || at == nil || at.Kind != spec.Str && at.Kind != spec.List {
		return "", false, at
	}
	for _, list := range words(at) {
		for _, word := range strings.Fields(list) {
			switch name := strings.ToUpper(word); {
			case slices.Contains(strategies, name):
				if strategy == "" {
					strategy = name
				}
			case word == "offload":
				offload = true
			case word == "auto_wrap":
			default:
				f.fail(at, "unknown word %q of fsdp; allowed are full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2, offload and auto_wrap", word)
			}
		}
	}
	return strategy, offload, at
}

// fsdpKey finds a key of fsdp_config, which may have the prefix fsdp_.
func fsdpKey(conf *spec.Value, name string) *spec.Value {
	if conf.Kind != spec.Map {
		return nil
	}
	if v := conf.Get("fsdp_" + name); v != nil {
		return v
	}
	return conf.Get(name)
}

// fsdpFormat are the keys of fsdp_config, which may have the prefix fsdp_.
var fsdpFormat = &Format{
	Name: "fsdp_config", Title: "fsdp_config",
	Keys: slices.Concat(
		table(reads, "`parallel`", "version offload_params cpu_offload reshard_after_forward sharding_strategy mixed_precision_policy cpu_ram_efficient_loading"),
		table(none, "the layers of the model are sharded one by one, as presets name them", "transformer_layer_cls_to_wrap auto_wrap_policy transformer_cls_names_to_wrap"),
		table(none, "how checkpoints are written", "state_dict_type final_state_dict_type save_state_dict_type"),
		table(none, "host memory and time of the load", "sync_module_states"),
		table(none, "how far the host is ahead of the GPU", "limit_all_gathers"),
		table(reads, "`parallel`, of FSDP1", "use_orig_params backward_prefetch forward_prefetch backward_prefetch_policy"),
		table(reads, "`trainer.hf.gradient_checkpointing`", "activation_checkpointing"),
		table(asks, "wrapping by size", "min_num_params"),
	),
}

// sharded writes what fsdp_config says.
func (f *file) sharded(j *job, conf *spec.Value) {
	version := j.get("fsdp_version")
	if version == nil {
		version = fsdpKey(conf, "version")
	}
	second := version != nil && version.Str == "2"
	if version == nil && j.format != axolotl && (j.get("fsdp_config") == conf || j.get("fsdp") == conf) { // of transformers itself, which has 2 for its default (training_args.py of 5.12)
		second = true
	}
	two := j.spread.two || second
	f.table(j, conf, fsdpFormat, "fsdp_")
	strategy, offload, words := f.legacyFSDP(j)
	for _, k := range []string{"offload_params", "cpu_offload"} {
		if v := fsdpKey(conf, k); v != nil {
			offload, words = given(v), v
		}
	}
	if offload {
		j.out.put("parallel.cpu_offload", "true", f.from(words))
	}
	mixed := f.mixedPrecision(j, conf)
	types := []string{"param_dtype", "reduce_dtype", "output_dtype"}
	if two {
		f.resharded(j, conf, strategy)
	} else {
		f.flat(j, conf, strategy)
		types[2] = "buffer_dtype"
	}
	if second && j.format != axolotl { // which has a fsdp2_prepare_model of its own
		j.put("parallel.shard_embeddings", "true", nil).why = "as accelerate 1.14 does it"
		if v := fsdpKey(conf, "cpu_ram_efficient_loading"); given(v) {
			j.out.put("parallel.cpu_ram_efficient_loading", "true", f.from(v))
		}
		if v := fsdpKey(conf, "activation_checkpointing"); given(v) {
			f.doubt(j, v, "activation_checkpointing: accelerate 1.14 checkpoints each module of a layer by itself with FSDP2; planned with one checkpoint for each layer, which takes less")
		}
	}
	if mixed != "" {
		for _, k := range types {
			j.put("parallel."+k, mixed, nil)
		}
		j.put("model.load.dtype", "float32", nil).why = "accelerate converts the parameters that FSDP shards and that are trained"
	}
}

// resharded writes what FSDP2 frees after the forward pass, as far as keys of FSDP1, or a
// strategy of TrainingArguments' fsdp, say it, too.
func (f *file) resharded(j *job, conf *spec.Value, strategy string) {
	const reshard = "parallel.reshard_after_forward"
	if v := fsdpKey(conf, "reshard_after_forward"); v != nil && v.Kind == spec.Bool {
		j.out.put(reshard, flow(v), f.from(v))
	}
	if v := fsdpKey(conf, "sharding_strategy"); v != nil {
		switch f.strategy(v) {
		case "SHARD_GRAD_OP":
			j.out.put(reshard, "false", f.from(v))
		case "NO_SHARD":
			f.fail(v, "sharding_strategy NO_SHARD is DistributedDataParallel; write distributed_type: MULTI_GPU")
		case "HYBRID_SHARD", "HYBRID_SHARD_ZERO2":
			f.doubt(j, v, "sharding_strategy: %s; planned with shards over all processes", v.Str)
		}
	}
	switch v := j.get("fsdp"); {
	case j.out.get(reshard) != nil:
	case strategy == "FULL_SHARD":
		j.out.put(reshard, "true", f.from(v))
	case strategy == "SHARD_GRAD_OP":
		j.out.put(reshard, "false", f.from(v))
	case strategy != "":
		f.fail(v, "%s is a strategy of FSDP1 alone, and transformers has FSDP2 by default; write fsdp_config: {version: 1}", strings.ToLower(strategy))
	default:
		j.put(reshard, "true", nil).why = "accelerate's default"
	}
}

// strategies are FSDP_SHARDING_STRATEGY of accelerate, which stand for their numbers from 1 on, too.
var strategies = []string{"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"}

// strategy is the name of a sharding strategy.
func (f *file) strategy(v *spec.Value) string {
	name := strings.ToUpper(v.Str)
	if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= len(strategies) {
		name = strategies[n-1]
	}
	if !slices.Contains(strategies, name) {
		f.fail(v, "unknown sharding strategy %q; FSDP has %s", v.Str, strings.Join(strategies, ", "))
	}
	return name
}

// flat writes what FSDP1 is given: accelerate has other defaults than FullyShardedDataParallel.
func (f *file) flat(j *job, conf *spec.Value, strategy string) {
	version := j.get("fsdp_version")
	if version == nil {
		version = fsdpKey(conf, "version")
	}
	if version != nil {
		j.out.put("parallel.version", "1", f.from(version))
	} else {
		j.put("parallel.version", "1", nil).why = "accelerate's default"
	}
	v := fsdpKey(conf, "sharding_strategy")
	if v == nil {
		v = fsdpKey(conf, "reshard_after_forward")
	}
	name := strategy
	switch {
	case v != nil && v.Kind != spec.Bool:
		name = f.strategy(v)
	case strategy != "":
		v = j.get("fsdp")
	}
	if name != "" {
		switch name {
		case "HYBRID_SHARD", "HYBRID_SHARD_ZERO2":
			f.doubt(j, v, "sharding_strategy: %s; planned with shards over all processes", name)
			name = map[string]string{"HYBRID_SHARD": "FULL_SHARD", "HYBRID_SHARD_ZERO2": "SHARD_GRAD_OP"}[name]
		}
		j.out.put("parallel.sharding_strategy", name, f.from(v))
	}
	prefetch := "NO_PREFETCH"
	for _, k := range []string{"backward_prefetch", "backward_prefetch_policy"} {
		if v := fsdpKey(conf, k); v != nil && v.Kind == spec.Str {
			switch name := strings.ToUpper(v.Str); name {
			case "BACKWARD_PRE", "BACKWARD_POST":
				prefetch = name
			case "NO_PREFETCH":
			default:
				f.fail(v, "unknown backward prefetch %q; FSDP has BACKWARD_PRE, BACKWARD_POST, NO_PREFETCH", v.Str)
			}
		}
	}
	if prefetch != "BACKWARD_PRE" {
		j.put("parallel.backward_prefetch", prefetch, nil)
	}
	if v := fsdpKey(conf, "forward_prefetch"); given(v) {
		j.out.put("parallel.forward_prefetch", "true", f.from(v))
	}
	switch v := fsdpKey(conf, "use_orig_params"); {
	case v == nil:
		j.put("parallel.use_orig_params", "true", nil).why = "the default of accelerate launch and of transformers"
	case given(v):
		j.out.put("parallel.use_orig_params", "true", f.from(v))
	}
	if v := fsdpKey(conf, "activation_checkpointing"); given(v) {
		f.doubt(j, v, "activation_checkpointing: with FSDP1 the checkpoint lies in what is wrapped; planned with one around it")
	}
}

// mixedPrecision is the type in which accelerate has FSDP compute; "": that of the parameters.
func (f *file) mixedPrecision(j *job, conf *spec.Value) string {
	types := map[string]string{"bf16": "bfloat16", "fp16": "float16"}
	mixed := ""
	for _, k := range []string{"bf16", "fp16"} {
		if n := j.out.get("trainer." + j.format.Trainer + "." + k); n != nil && n.text == "true" {
			mixed = types[k]
		}
	}
	if v := fsdpKey(conf, "mixed_precision_policy"); v != nil && v.Kind == spec.Str {
		mixed = types[v.Str]
	}
	return mixed
}

// checkpoints writes what activation_checkpointing of fsdp_config does: accelerate puts each layer in
// a checkpoint without reentrant backward passes.
func (f *file) checkpoints(j *job, conf *spec.Value) {
	v, key := fsdpKey(conf, "activation_checkpointing"), "trainer."+j.format.Trainer+".gradient_checkpointing"
	if !given(v) {
		return
	}
	j.out.put(key, "true", f.from(v))
	j.out.put(key+"_kwargs", "{use_reentrant: false}", f.from(v))
}

// engine writes the section of DeepSpeed's engine and reports whether it did: of stages 1 to 3
// with transformers.Trainer, whose model has no quantized weights and, of adapters, LoRA's; with
// stage 3 nothing is in host memory.
func (f *file) engine(j *job, v *spec.Value, ranks string) bool {
	if t := j.format.Trainer; t != "hf" && t != "sft" {
		return false
	}
	peft := j.out.get("peft")
	if j.out.get("model.load.quantization_config") != nil || peft != nil && (peft.get("lora") == nil || peft.get("kernels") != nil) {
		return false
	}
	conf, text := v, ""
	switch {
	case v.Kind == spec.Str && j.opts.ReadFile != nil:
		b, err := j.opts.ReadFile(v.Str)
		if err != nil || !json.Valid(b) {
			return false
		}
		conf, text = spec.ReadPlain(v.Str, b, nil).Root, quote(v.Str)
	case v.Kind != spec.Map:
		return false
	case v.Get("zero_stage") != nil: // accelerate's keys
		conf, text = nil, f.plugin(v)
	default:
		text = flow(v)
	}
	stage := conf.Get("zero_optimization").Get("stage")
	if conf == nil {
		stage = v.Get("zero_stage")
	}
	if stage == nil || stage.Str != "1" && stage.Str != "2" && stage.Str != "3" {
		return false
	}
	if stage.Str == "3" && (peft != nil && j.out.get("model.load") == nil || offloads(conf, v)) {
		return false
	}
	j.out.put("parallel.deepspeed", ranks, f.from(v))
	j.out.put("parallel.config", text, f.from(v))
	j.keys["parallel.config"] = "deepspeed"
	return true
}

// offloads reports whether a DeepSpeed configuration, or accelerate's keys, put something into
// host memory.
func offloads(conf, v *spec.Value) bool {
	for _, k := range []string{"offload_optimizer", "offload_param"} {
		d := conf.Get("zero_optimization").Get(k).Get("device")
		if conf == nil {
			d = v.Get(k + "_device")
		}
		if given(d) && d.Str != "none" {
			return true
		}
	}
	return false
}

// plugin is the configuration that accelerate makes of its own keys (DeepSpeedPlugin in
// accelerate/utils/dataclasses.py).
func (f *file) plugin(v *spec.Value) string {
	zero := "stage: " + v.Get("zero_stage").Str
	for _, k := range []string{"offload_optimizer", "offload_param"} {
		if d := v.Get(k + "_device"); d != nil {
			zero += ", " + k + ": {device: " + flow(d) + "}"
		}
	}
	text := "{zero_optimization: {" + zero + "}, bf16: {enabled: auto}, fp16: {enabled: auto}, gradient_accumulation_steps: auto"
	if c := v.Get("gradient_clipping"); c != nil {
		text += ", gradient_clipping: " + flow(c)
	}
	return text + "}"
}

// zero says which stage of ZeRO a DeepSpeed configuration asks for.
func (f *file) zero(j *job, v *spec.Value) {
	conf, text := v, []byte(nil)
	if v.Kind == spec.Str && j.opts.ReadFile != nil {
		var err error
		if text, err = j.opts.ReadFile(v.Str); err != nil {
			f.doubt(j, v, "deepspeed: the file %s cannot be read; the stage of ZeRO is not known", v.Str)
			return
		}
		d := spec.ReadPlain(v.Str, text, nil)
		if d.Root == nil || !json.Valid(text) {
			f.fail(v, "deepspeed: %s is not valid JSON", v.Str)
		}
		conf = d.Root
	}
	zero := conf.Get("zero_optimization")
	stage := zero.Get("stage")
	if stage == nil {
		stage = conf.Get("zero_stage") // accelerate's
	}
	if stage == nil {
		return
	}
	off := ""
	for _, k := range []string{"offload_optimizer", "offload_param"} {
		d := zero.Get(k).Get("device")
		if d == nil {
			d = conf.Get(k + "_device")
		}
		if d != nil && d.Str != "none" {
			off += ", " + k + " to " + d.Str
		}
	}
	f.doubt(j, v, "deepspeed: ZeRO stage %s%s", stage.Str, off)
}
