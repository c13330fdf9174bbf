package graph

import "github.com/memplan/memplan/internal/graph/techniques"

// change changes the models, which are elaborated, as the job's spec asks.
func (el *building) change() {
	el.optimParams()
	t := el.techniques()
	t.Converted()
	t.Quantize()
	t.Prune()
	t.Freeze()
	t.LoRA()
	t.PEFT()
	el.adapterBiases()
	t.Trains()
	t.Offload()
	el.optimGiven()
	t.InBackward()
	el.inLoop(el.evaluation)
	el.measuredRates()
	t.FuseEvaluation()
	t.Parallel()
	t.ChannelsLast()
	t.Checkpoint()
	t.Apart()
	t.Pipeline()
	el.megatronSchedule()
}

// techniques is the job for what changes its models.
func (el *building) techniques() *techniques.Job {
	j := &techniques.Job{
		Spec: el.spec, Job: el.job, Env: el.env(), Batch: el.batch, Torch: el.opts.Env.Torch, Checkpoints: el.checkpoints,
		ClassName: el.className, Warnings: &el.warnings, NotModelled: &el.notModelled,
		DeepSpeed: el.deepspeed,
	}
	j.Env.Gathered = el.gathers(el.ms[0]) // of the only model
	for _, x := range el.plan {
		j.Plan = append(j.Plan, techniques.Planned{Pattern: x.Pattern, Style: *style(x)})
	}
	for _, m := range el.ms {
		j.Models = append(j.Models, techniques.Model{
			Name: m.name, At: m.at, Use: m.use, Loaded: m.loaded, Params: m.spec.Env, Checkpoint: m.checkpointed(), Shrunk: m.shrunk, Type: m.hfType,
		})
	}
	return j
}
