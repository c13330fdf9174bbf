package graph

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/graph/techniques"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// deepSpeed reads the configuration of DeepSpeed's engine before anything else, since
// types and microbatches are its.
func (el *building) deepSpeed() {
	p := el.spec.Parallel
	if p.DeepSpeedRanks() == 0 || el.job.Inference != "" {
		if p != nil && p.Config != nil && p.DeepSpeedRanks() == 0 {
			el.fail(p.Config.Span, "config is a key of parallel.deepspeed, the number of processes: parallel: {deepspeed: 8, config: ...}")
		}
		return
	}
	at := p.DeepSpeed.Span
	if p.DDP.Set || p.FSDP.Set {
		el.fail(at, "deepspeed, ddp and fsdp exclude one another")
	}
	if n := p.DeepSpeedRanks(); n < 1 || n > 131072 {
		el.fail(at, "deepspeed is the number of processes, from 1 to 131072, not %d", n)
	}
	c, left := el.deepSpeedConfig(p)
	el.deepspeed = c
	t := &el.spec.Train
	switch gas := c.Accumulation; {
	case !t.GradAccumulation.Set:
		t.GradAccumulation.V = gas.V
	case gas.Set && gas.V != t.GradAccumulation.V:
		el.fail(t.GradAccumulation.At, "grad_accumulation is %d, but gradient_accumulation_steps of DeepSpeed's configuration is %d; write one of them", t.GradAccumulation.V, gas.V)
	}
	if b, m := c.TrainBatch, c.MicroBatch; b.Set && m.Set && b.V != m.V*t.GradAccumulation.V*p.DeepSpeedRanks() {
		el.fail(at, "DeepSpeed refuses train_batch_size %d, which is not train_micro_batch_size_per_gpu %d x gradient_accumulation_steps %d x %d processes", b.V, m.V, t.GradAccumulation.V, p.DeepSpeedRanks())
	}
	d := techniques.DeepSpeedType(c)
	if c.FP16.Enabled.V && c.BF16.Enabled.V {
		el.fail(at, "bf16 and fp16 of DeepSpeed's configuration exclude each other")
	}
	var why []string
	for _, k := range left {
		why = append(why, k.Path+" ("+k.Why+")")
	}
	z := &c.Zero
	played := z.Stage.V > 0
	switch {
	case z.Stage.V == 0:
		why = append(why, "stage 0: DeepSpeed's engine without ZeRO")
	case z.Stage.V == 1 && d == tensor.BFloat16 && c.Types.GradAccum.V == "fp32" && !z.OffloadOptim.ToHost():
		played = false
		why = append(why, "bf16 of stage 1 with grad_accum_dtype fp32: BF16_Optimizer")
	}
	if o := z.OffloadOptim; o != nil && o.Device.V == "nvme" {
		why = append(why, "offload_optimizer to nvme")
	}
	if c.Optimizer != nil && (t.Optimizer == nil || el.byTrainer()) { // else the script hands its own to DeepSpeed
		why = append(why, "optimizer, which is one of DeepSpeed's own: the job's is planned, all else being equal, and DeepSpeed's Adam keeps as much")
	}
	if len(why) > 0 {
		worth := spec.WorthOfDeepSpeed
		if played {
			worth = "the engine is planned without"
		}
		el.notModelled = append(el.notModelled, note.Asked.New("parallel.deepspeed: %s; %s", strings.Join(why, ", "), worth).Of("parallel.deepspeed"))
	}
	if !played {
		return
	}
	p.Engine, p.Casts = true, el.byTrainer()
	el.apart = z.Stage.V == 3
	switch {
	case !t.Precision.Set || p.Casts:
		el.job.DType, el.job.Autocast, el.job.LowerType, el.job.Scaler = d, false, 0, false
		el.shapes.E.Autocast, el.shapes.E.AutocastDType = false, 0
	case d != tensor.Float32 && el.job.DType != d:
		el.fail(t.Precision.At, "precision %s is not that of DeepSpeed's configuration, %s; leave precision out", t.Precision.V, d)
	}
}

// deepSpeedConfig reads the configuration, in the spec or in a file beside it.
func (el *building) deepSpeedConfig(p *spec.Parallel) (*spec.DeepSpeed, []spec.DeepSpeedKey) {
	v := p.Config
	switch {
	case v == nil || v.Kind == spec.Null:
		el.fail(p.DeepSpeed.Span, "deepspeed needs config, DeepSpeed's configuration or the path of its file: deepspeed: {ranks: 8, config: {zero_optimization: {stage: 2}, bf16: {enabled: true}}}")
	case v.Kind == spec.Map:
		c, left := spec.ReadDeepSpeed(v, el.errs, el.spec.Env, el.deepSpeedAuto())
		el.stopAtMistakes(el.errs)
		return c, left
	case v.Kind != spec.Str:
		el.fail(v.Span, "config is a mapping, or the path of a file, not %s", v.Describe())
	case el.opts.ReadFile == nil:
		el.fail(v.Span, "config: %s cannot be read here: there are no files", v.Str)
	}
	text, err := el.opts.ReadFile(v.Str)
	if err != nil {
		el.unread = true
		el.fail(v.Span, "config: %v", err)
	}
	d := spec.ReadPlain(v.Str, text, nil)
	if d.Root == nil || d.Root.Kind != spec.Map {
		if d.Errs.Err() == nil {
			d.Errs.Addf(spec.Span{Pos: spec.Pos{Line: 1, Col: 1}, Len: 1}, "DeepSpeed's configuration is a mapping")
		}
		el.stopAtThose(d.Errs, v)
	}
	c, left := spec.ReadDeepSpeed(d.Root, d.Errs, nil, el.deepSpeedAuto())
	el.stopAtThose(d.Errs, v)
	c.File, c.Named = v.Str, v.Span
	return c, left
}

// stopAtThose ends with the mistakes of a file that v names, if there are any.
func (el *building) stopAtThose(errs *spec.Errors, v *spec.Value) {
	for _, d := range errs.Sorted() {
		if d.Hint != "" {
			d.Msg += "; " + d.Hint
		}
		el.errs.Addf(v.Span, "%s:%d:%d: %s", v.Str, d.Line, d.Col, d.Msg)
	}
	if errs.Err() != nil {
		panic(spec.Stop{})
	}
}

// stopAtMistakes ends with what has been reported.
func (el *building) stopAtMistakes(errs *spec.Errors) {
	if errs.Err() != nil {
		panic(spec.Stop{})
	}
}

// byTrainer reports whether the loop is that of transformers.Trainer, which hands its
// arguments on to DeepSpeed.
func (el *building) byTrainer() bool {
	return el.spec.Trainer != nil && el.spec.Trainer.OfTransformers()
}

// deepSpeedAuto are the values that stand for "auto"; nil: there is no trainer that fills them
// in (HfTrainerDeepSpeedConfig.trainer_config_process in
// transformers/integrations/deepspeed.py). Sizes of buckets follow from the model.
func (el *building) deepSpeedAuto() map[string]*spec.Value {
	if !el.byTrainer() {
		return nil
	}
	a := el.spec.Trainer.Args()
	integer := func(n int64) *spec.Value { return &spec.Value{Kind: spec.Int, Int: n, Str: fmt.Sprint(n)} }
	boolean := func(b bool) *spec.Value { return &spec.Value{Kind: spec.Bool, Bool: b, Str: fmt.Sprint(b)} }
	clip := a.Number("max_grad_norm")
	batch, gas := a.Int("per_device_train_batch_size"), a.Int("gradient_accumulation_steps")
	return map[string]*spec.Value{
		"train_micro_batch_size_per_gpu": integer(batch), "gradient_accumulation_steps": integer(gas),
		"train_batch_size":  integer(batch * gas * el.spec.Parallel.DeepSpeedRanks()),
		"gradient_clipping": {Kind: spec.Float, Float: clip, Str: fmt.Sprint(clip)},
		"bf16.enabled":      boolean(a.Bool("bf16") || a.Bool("bf16_full_eval")),
		"fp16.enabled":      boolean(a.Bool("fp16") || a.Bool("fp16_full_eval")),
	}
}
