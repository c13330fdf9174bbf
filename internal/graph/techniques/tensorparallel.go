package techniques

import (
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
)

// tensorParallel reads which modules parallelize_module divides, and refuses what does not
// go with it. Their parts are known since they were elaborated.
func (j *Job) tensorParallel(s *spec.Parallel) {
	if s.Plan == nil {
		j.fail(s.TP.At, "tp needs a plan, such as plan: {\"layers.*.up\": colwise, \"layers.*.down\": rowwise}")
	}
	p := &j.Job.Parallel
	if len(j.Models) > 1 {
		j.fail(s.TP.At, "tp of several models is not modelled; this job has %s", spec.Plural(len(j.Models), "model"))
	}
	root := j.Job.Models[0].Root
	p.Ranks, p.TP = max(p.Ranks, 1)*s.TP.V, &program.TP{Ranks: s.TP.V, Loss: s.Loss.V}
	paths := root.ModulePaths()
	styled := map[string]bool{}
	for _, x := range j.Plan {
		patterns := Patterns(j.Spec.Errs, []spec.String{x.Pattern}, "module", paths)
		root.Walk(func(path string, _ *program.Class) {
			if path == "" || !patterns.Fits(path) {
				return
			}
			if styled[path] {
				j.fail(x.Pattern.At, "%s has two styles in the plan", path)
			}
			styled[path] = true
			p.TP.Modules = append(p.TP.Modules, program.Parallelized{Path: path, Style: x.Style})
		})
	}
	if j.Spec.Errs.Err() != nil { // a pattern that fits nothing
		panic(spec.Stop{})
	}
	root.Walk(func(path string, c *program.Class) {
		if styled[path] && c.Style == nil {
			j.fail(s.Plan.Span, "%s is %s; the styles are modelled of Linear, Embedding, LayerNorm and RMSNorm, and prepare_input and prepare_output of blocks", path, c.Describe())
		}
		if (!styled[path] || c.Style.Prepares()) && len(c.Params) > 0 {
			j.fail(s.Plan.Span, "%s, %s, gets no style from the plan: optimizers refuse parameters of which some are DTensors and some are not, PyTorch says (got mixed torch.Tensor and DTensor); "+
				"give each module that has parameters a style", path, c.Describe())
		}
	})
	j.tensorParallelGoesWith(s)
	j.evenly(s)
	if v := j.Torch; v != torchver.Recorded {
		*j.Warnings = append(*j.Warnings, note.OtherTP.New("parallel.tp: parallelize_module of PyTorch %v is planned as that of %v", v, torchver.Recorded).Of("parallel.tp"))
	}
}

// evenly refuses parameters whose first dimension both tp and fsdp divide, but not without a rest
// (FSDPParam._init_sharded_param).
func (j *Job) evenly(s *spec.Parallel) {
	p := &j.Job.Parallel
	if p.FSDP == nil {
		return
	}
	parts := p.TP.Ranks * p.FSDP.Shards
	for _, x := range p.TP.Modules {
		j.Job.Models[0].Root.Walk(func(path string, c *program.Class) {
			if path != x.Path {
				return
			}
			for i := range c.Params {
				param := &c.Params[i]
				if dim, divided := x.Divides(param.Name, c.Is().Table); divided && dim == 0 && param.Size[0]%parts != 0 {
					j.fail(s.FSDP.At, "%s has %d rows, which tp and fsdp together do not divide into %d equal parts; PyTorch 2.6 refuses that (FSDP+TP sharding does not support uneven sharding), and it is not modelled of later ones", program.Join(path, param.Name), param.Size[0], parts)
				}
			}
		})
	}
}

// ReentrantTP is why use_reentrant: true is refused.
const ReentrantTP = "use_reentrant: true is not modelled with parallel.tp: results of the recomputation live until Python's garbage collector finds them"

// tensorParallelGoesWith refuses what is not modelled of modules that are divided.
func (j *Job) tensorParallelGoesWith(s *spec.Parallel) {
	m, job := j.Job.Models[0], j.Job
	if c := j.Spec.Train.Checkpoint; j.Checkpoints() && c.Reentrant.V {
		j.fail(c.Reentrant.At, ReentrantTP)
	}
	for _, x := range []struct {
		what  string
		given bool
	}{
		{"mode: infer", job.Inference != ""},
		{"precision amp-fp16, whose GradScaler looks at all gradients,", job.Scaler},
		{"offload", job.Offload != program.Offload{}},
		{"optimizer_in_backward", job.InBackward},
		{"lora", m.Adapters != nil},
		{"quantize", m.Quantized != nil},
		{"prune", m.Pruned != nil},
		{"freeze", len(m.Frozen) > 0},
		{"load", m.Loaded != nil},
		{"train.ema", job.EMA != nil},
		{"shard_embeddings", s.Ends.V},
		{"compile", m.Compiled != nil},
		{"channels_last", job.ChannelsLast},
		{"a trainer", j.Spec.Trainer != nil},
		{"an eval:", job.Eval != nil || j.Spec.Eval != nil},
		{"parameters that modules share", len(tiedModules(m.Root)) > 0},
	} {
		if x.given {
			j.fail(s.TP.At, "%s is not modelled with parallel.tp", x.what)
		}
	}
	redistributed := false
	for _, x := range job.Parallel.TP.Modules {
		m.Root.Walk(func(path string, c *program.Class) {
			redistributed = redistributed || path == x.Path && (x.Name == program.Sequence || x.Name == program.Rowwise && c.Is().Table)
		})
	}
	for _, o := range job.Optimizers {
		for _, args := range o.AllArgs() {
			err := o.Row.CheckSharded(args)
			if err == nil && redistributed {
				err = o.Row.CheckRedistributed(args)
			}
			if err != nil {
				j.fail(s.TP.At, "%v", err)
			}
		}
	}
}
