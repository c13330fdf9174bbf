package spec

import (
	"reflect"
	"slices"
	"strings"
)

// Parallel spreads a job over several GPUs. All else in a spec is what one
// process does on its GPU: the batch is that of one rank. More than 131072
// processes, eight times the GPUs of Llama 3 (arXiv:2407.21783), are taken
// for a slip: what is allocated for each of them would be played.
type Parallel struct {
	At        Span    `yaml:"-"`
	Engine    bool    `yaml:"-"` // DeepSpeed's engine is played, which is known once its configuration is read
	Casts     bool    `yaml:"-"` // it converts the parameters of a model that is made in float32
	DDP       Integer `yaml:"ddp" min:"1" max:"131072" doc:"processes, one on each GPU, with torch.nn.parallel.DistributedDataParallel around each model that is trained"`
	BucketCap Number  `yaml:"bucket_cap_mb" min:"0" default:"25" of:"ddp" doc:"of ddp: MiB of gradients that are reduced at a time"`
	View      Boolean `yaml:"gradient_as_bucket_view" default:"false" of:"ddp" doc:"of ddp: gradients are views of the buckets, not copies"`
	Unused    Boolean `yaml:"find_unused_parameters" default:"false" of:"ddp" doc:"of ddp: parameters may get no gradient"`
	Static    Boolean `yaml:"static_graph" default:"false" of:"ddp" doc:"of ddp: the graph is the same in every step"`
	Broadcast Boolean `yaml:"broadcast_buffers" default:"true" of:"ddp" doc:"of ddp: buffers are copied from the first process before a forward pass"`
	Hook      String  `yaml:"comm_hook" enum:"fp16_compress_hook|bf16_compress_hook" words:"fp16: fp16_compress_hook|float16: fp16_compress_hook|bf16: bf16_compress_hook|bfloat16: bf16_compress_hook" of:"ddp" doc:"of ddp: gradients are reduced in 16 bits"`
	NoSync    Boolean `yaml:"no_sync" default:"false" of:"ddp fsdp" doc:"with grad_accumulation, gradients are reduced after the last microbatch only"`

	FSDP      Integer `yaml:"fsdp" min:"1" max:"131072" doc:"processes, one on each GPU, which share the parameters of the model, their gradients and optimizer state: FSDP2, torch.distributed.fsdp.fully_shard of some modules and of the model. With tp, those of its dimension of the mesh"`
	Replicate Integer `yaml:"replicate" min:"1" max:"131072" default:"1" of:"fsdp" doc:"of fsdp: HSDP: so many groups of processes have all parameters, divided among the processes of a group; gradients are reduced within the groups and then between them"`
	Modules   Units   `yaml:"modules" of:"fsdp" doc:"of fsdp: to which modules fully_shard is applied, in this order but inner ones first: paths or patterns, such as blocks.*, for each module by itself; lists of paths, whose modules are gathered together; or mappings with options of these. By default the modules that a preset names for checkpoints"`
	Reshard   *Value  `yaml:"reshard_after_forward" of:"fsdp" doc:"of fsdp: true, false, or over how many processes the parameters of a module are divided between its forward and its backward pass"`
	Last      Boolean `yaml:"reshard_last" default:"true" of:"fsdp" doc:"of fsdp: false: the last of modules keeps its parameters from its forward to its backward pass, as torchtitan has it; with reshard_last given, the model itself is wrapped without reshard_after_forward"`
	Ends      Boolean `yaml:"shard_embeddings" default:"false" of:"fsdp" doc:"of fsdp: true: as accelerate 1.14 has models of transformers: the table of tokens is sharded apart, and the last norm together with the output embedding, which keep their parameters from their forward to their backward pass; where both embeddings share a weight, the last norm together with the table, and the output embedding has a weight of its own from then on. The model itself is wrapped without reshard_after_forward"`
	Efficient Boolean `yaml:"cpu_ram_efficient_loading" default:"false" of:"fsdp" doc:"of fsdp: with shard_embeddings, accelerate's: after fully_shard the embeddings share a weight again, which both gather. The load itself is planned as without it"`
	Meta      Boolean `yaml:"meta_device" default:"false" of:"fsdp" doc:"of fsdp: the model is made on the meta device, and to_empty allocates the parts of a rank after fully_shard"`
	Param     String  `yaml:"param_dtype" of:"fsdp" doc:"of fsdp: type in which parameters are gathered and computed with"`
	Reduce    String  `yaml:"reduce_dtype" of:"fsdp" doc:"of fsdp: type in which gradients are reduced"`
	Output    String  `yaml:"output_dtype" of:"fsdp" doc:"of fsdp: type of the results of modules that are sharded"`
	Cast      Boolean `yaml:"cast_forward_inputs" default:"true" of:"fsdp" doc:"of fsdp: arguments of modules that are sharded are converted to param_dtype"`
	Offload   Boolean `yaml:"cpu_offload" default:"false" of:"fsdp" doc:"of fsdp: CPUOffloadPolicy; parameters, gradients and the optimizer are in host memory"`
	Pin       Boolean `yaml:"pin_memory" default:"true" of:"fsdp" doc:"of fsdp: with cpu_offload, in page-locked memory"`

	Version  Integer `yaml:"version" min:"1" max:"2" default:"2" of:"fsdp" doc:"of fsdp: 1: FullyShardedDataParallel, FSDP1, around modules and the model: the parameters of each are one flat parameter, which is divided. The keys below are of version 1"`
	Strategy String  `yaml:"sharding_strategy" enum:"FULL_SHARD|SHARD_GRAD_OP|NO_SHARD|HYBRID_SHARD|_HYBRID_SHARD_ZERO2" default:"FULL_SHARD" of:"fsdp" doc:"of fsdp, version 1: what is divided, and when it is gathered; the hybrid strategies need replicate"`
	Orig     Boolean `yaml:"use_orig_params" default:"false" of:"fsdp" doc:"of fsdp, version 1: the optimizer steps views of the flat parameters, one for each parameter of the model"`
	Forward  Boolean `yaml:"forward_prefetch" default:"false" of:"fsdp" doc:"of fsdp, version 1: the parameters of the next module are gathered before a module runs"`
	Backward String  `yaml:"backward_prefetch" enum:"BACKWARD_PRE|BACKWARD_POST|NO_PREFETCH" default:"BACKWARD_PRE" of:"fsdp" doc:"of fsdp, version 1: when in the backward pass the parameters of the next module are gathered"`
	Buffer   String  `yaml:"buffer_dtype" of:"fsdp" doc:"of fsdp, version 1: type to which buffers of floating-point numbers are converted"`
	CastRoot Boolean `yaml:"cast_root_forward_inputs" default:"true" of:"fsdp" doc:"of fsdp, version 1: arguments of the model are converted to param_dtype; cast_forward_inputs, those of all modules, is false by default"`

	ZeRO   Integer `yaml:"zero" min:"1" of:"ddp" doc:"of ddp: 1, the stage of ZeRO: each process steps some of the parameters and has their optimizer state alone (torch.distributed.optim.ZeroRedundancyOptimizer)"`
	Bucket Boolean `yaml:"parameters_as_bucket_view" default:"false" of:"ddp" doc:"of zero: the parameters that a process steps are views of one tensor"`

	DeepSpeed *Value  `yaml:"deepspeed" doc:"processes, one on each GPU, with DeepSpeed's engine around the model; anything but a number is" later:"DeepSpeed" modelled:"ranks"`
	Config    *Value  `yaml:"config" of:"deepspeed" doc:"of deepspeed: its configuration, a mapping with the keys of its JSON, or the path of the file"`
	Rank      Integer `yaml:"rank" min:"0" max:"131071" default:"0" of:"deepspeed pp" doc:"of deepspeed: the process that is planned; its part of the parameters, and of their gradients, is not that of others. Of pp: the stage that is planned; without it all are, and the report is of the one that reserves most"`

	TP   Integer `yaml:"tp" min:"2" max:"131072" doc:"processes, one on each GPU, over which the modules of plan are divided: tensor parallelism, torch.distributed.tensor.parallel.parallelize_module. With fsdp, those of its dimension of the mesh"`
	Plan *Value  `yaml:"plan" of:"tp" doc:"of tp: paths or patterns of modules, such as layers.*.up, with the style of each: colwise, rowwise, sequence, prepare_input or prepare_output, or a mapping of one to its arguments"`
	Loss Boolean `yaml:"loss_parallel" default:"false" of:"tp" doc:"of tp: steps run in torch.distributed.tensor.parallel.loss_parallel: cross_entropy of a DTensor that is divided among the classes"`

	PP           Integer  `yaml:"pp" min:"2" max:"131072" doc:"processes, one on each GPU, each with a stage of the model: pipeline parallelism, torch.distributed.pipelining with PipelineStage"`
	Split        []String `yaml:"split" of:"pp" doc:"of pp: paths of modules that forward calls; the model is cut before the call of each, into as many stages as there are processes, or a multiple of it"`
	Schedule     String   `yaml:"schedule" enum:"gpipe|1f1b|interleaved_1f1b|looped_bfs" words:"ScheduleGPipe: gpipe|GPipe: gpipe|Schedule1F1B: 1f1b|1F1B: 1f1b|ScheduleInterleaved1F1B: interleaved_1f1b|Interleaved1F1B: interleaved_1f1b|ScheduleLoopedBFS: looped_bfs|LoopedBFS: looped_bfs" default:"1f1b" of:"pp" doc:"of pp: the order of forward and backward passes: ScheduleGPipe, Schedule1F1B or, with several stages for each process, ScheduleInterleaved1F1B or ScheduleLoopedBFS"`
	Microbatches Integer  `yaml:"microbatches" min:"1" max:"65536" of:"pp" doc:"of pp: into how many parts schedule.step divides a batch"`

	Tensor   Integer `yaml:"tensor" min:"1" doc:"tensor-parallel ranks" later:"tensor parallelism" modelled:"1"`
	Pipeline Integer `yaml:"pipeline" min:"1" doc:"pipeline stages" later:"pipeline parallelism" modelled:"1"`
	Sequence Integer `yaml:"sequence" min:"1" doc:"sequence-parallel ranks" later:"sequence parallelism" modelled:"1"`
	Context  Integer `yaml:"context" min:"1" doc:"context-parallel ranks" later:"context parallelism" modelled:"1"`
}

// Unit are modules that fully_shard is called on: each that patterns fit by itself, or
// several in one call.
type Unit struct {
	At       Span     `yaml:"-"`
	Together bool     `yaml:"-"` // one call takes all modules; then there are no patterns
	Modules  []String `yaml:"modules" doc:"a path, or a pattern of modules that are sharded one by one, or a list of paths of modules that are gathered together"`
	Reshard  *Value   `yaml:"reshard_after_forward" doc:"that of these modules, in the place of that of parallel"`
}

// Units are the calls of fully_shard.
type Units []Unit

// unmarshal reads one unit, or a list of them.
func (us *Units) unmarshal(d *decoder, v *Value) {
	for _, it := range listOf(v) {
		u := Unit{At: it.Span}
		switch it.Kind {
		case Map:
			d.section(it, &u, "a unit of modules")
			if it.Get("modules") == nil {
				d.errs.Addf(it.Span, "a unit needs modules: a path or pattern, or a list of paths")
				continue
			}
		default:
			d.field(reflect.ValueOf(&u.Modules).Elem(), "", &Value{Str: "modules"}, it)
		}
		u.Together = len(u.Modules) > 1
		if u.Modules != nil {
			*us = append(*us, u)
		}
	}
}

// IsDeepSpeed reports whether DeepSpeed's engine is around the model, as far as it is modelled.
func (p *Parallel) IsDeepSpeed() bool {
	return p != nil && p.Engine
}

// AsAccelerate reports whether FSDP2 is that of accelerate.
func (p *Parallel) AsAccelerate() bool { return p != nil && p.FSDP.Set && p.Ends.V }

// FSDP1 reports whether FullyShardedDataParallel divides the model.
func (p *Parallel) FSDP1() bool { return p != nil && p.FSDP.Set && p.Version.V == 1 }

// CastsInputs reports whether FSDP converts what goes into modules that are sharded, and what
// goes into the model.
func (p *Parallel) CastsInputs() (modules, root bool) {
	if p.FSDP1() {
		return p.Cast.Set && p.Cast.V, p.CastRoot.V || p.Cast.Set && p.Cast.V
	}
	return p.Cast.V, p.Cast.V
}

// DeepSpeedRanks is the number of processes with DeepSpeed's engine, 0 if there is none.
func (p *Parallel) DeepSpeedRanks() int64 {
	if p == nil || p.DeepSpeed == nil || p.DeepSpeed.Kind != Int {
		return 0
	}
	return p.DeepSpeed.Int
}

// keyRanks is how many processes there are, in the sections ddp and fsdp.
const keyRanks = "ranks"

// spreads are the keys that spread a job over GPUs, each also a section of its own:
// ddp: {ranks: 8, bucket_cap_mb: 50} is parallel: {ddp: 8, bucket_cap_mb: 50}.
var spreads = []string{"ddp", "fsdp", "deepspeed", "tp", "pp"}

// Spreads lists those keys.
func Spreads() []string { return slices.Clone(spreads) }

// spreadKeys lists the keys of such a section beside ranks.
func spreadKeys(name string) []string {
	var out []string
	t := reflect.TypeFor[Parallel]()
	for i := range t.NumField() {
		if slices.Contains(strings.Fields(t.Field(i).Tag.Get("of")), name) {
			out = append(out, t.Field(i).Tag.Get("yaml"))
		}
	}
	return out
}

// gatherParallel moves the sections ddp and fsdp into parallel.
func gatherParallel(root *Value, errs *Errors) {
	for _, name := range spreads {
		if v := root.Get(name); v != nil {
			key := root.keyOf(name)
			root.drop([]string{name})
			if v.Kind == Null {
				continue
			}
			if p := root.Get("parallel"); p == nil || p.Kind == Null {
				root.put(&Value{Span: key.Span, Kind: Str, Str: "parallel"}, &Value{Span: key.Span, Kind: Map})
			}
			root.Get("parallel").give(key, v, errs)
		}
		parallel := root.Get("parallel")
		v := parallel.Get(name)
		if v == nil || v.Kind != Map || name == "deepspeed" && v.Get(keyRanks) == nil && v.Get("config") == nil {
			continue
		}
		key := parallel.keyOf(name)
		parallel.drop([]string{name})
		if v.Get(keyRanks) == nil {
			errs.Addf(key.Span, "%s needs ranks, the number of processes, one on each GPU: %s: {ranks: 8}", name, name)
		}
		allowed := append([]string{keyRanks}, spreadKeys(name)...)
		for _, p := range v.Pairs {
			switch {
			case p.Key.Str == keyRanks:
				parallel.give(key, p.Value, errs)
			case slices.Contains(allowed, p.Key.Str):
				parallel.give(p.Key, p.Value, errs)
			default:
				errs.Unknown(p.Key.Span, "key of "+name, p.Key.Str, allowed)
			}
		}
	}
}

// keyOf is a key of a mapping that has it.
func (v *Value) keyOf(name string) *Value {
	i := slices.IndexFunc(v.Pairs, func(p Pair) bool { return p.Key.Str == name })
	return v.Pairs[i].Key
}

// give sets a key of a mapping that does not have it already; of two the one that the
// command line gives wins.
func (v *Value) give(key, val *Value, errs *Errors) {
	old := v.Get(key.Str)
	switch {
	case v.Kind != Map, old != nil && old.Line < 0:
	case old != nil && val.Line > 0:
		errs.Addf(key.Span, "%s is given twice, in parallel and by itself", key.Str)
	default:
		v.put(key, val)
	}
}
