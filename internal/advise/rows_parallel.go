package advise

import "fmt"

// Changes of jobs on several GPUs: what each of them holds that
// the others have, too.
var _ = catalogue.add(
	Change{
		ID: "bucket-view", Rank: 701, Title: "gradients that are views of the buckets", Group: "ddp", Technique: "Several GPUs: DDP",
		Numerics: Same, Effort: Switch, Reach: Gradients | Passing, Clever: true,
		Cost: "nothing", Source: "documentation of DistributedDataParallel: gradient_as_bucket_view saves a copy between gradients and buckets",
		Options: func(b *Base) []Option {
			if d := b.Job.Program.Parallel.DDP; d == nil || d.BucketView {
				return nil
			}
			return []Option{{Keys: keys(key("parallel.gradient_as_bucket_view", true)), Text: "let gradients be views of the buckets in which they are reduced",
				Code: "model = DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True)"}}
		},
	},
	Change{
		ID: "zero", Rank: 702, Title: "optimizer state divided among the GPUs", Group: "zero", Technique: "Several GPUs: sharding",
		Numerics: Same, Effort: Lines, Reach: State | Stepping | Passing,
		Cost: "the parameters over the links between GPUs in each step", Source: "Rajbhandari et al. 2020, ZeRO (arXiv:1910.02054), stage 1; an all-reduce and a broadcast instead of an all-reduce",
		Options: func(b *Base) []Option {
			p := &b.Job.Program.Parallel
			if p.DDP == nil || p.Ranks < 2 || p.ZeRO != nil {
				return nil
			}
			return []Option{{Keys: keys(key("parallel.zero", 1)), Text: "let each process step some of the parameters and hold their optimizer state alone",
				Code: "optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, ...)",
				Work: func(w *Work) { w.Link += w.ParameterBytes }}}
		},
	},
	Change{
		ID: "fsdp", Rank: 703, Title: "parameters divided among the GPUs", Group: "fsdp", Technique: "Several GPUs: sharding",
		Numerics: Same, Effort: Rewrite, Reach: Everything,
		Cost: "the parameters over the links between GPUs in each forward and backward pass, half as much again as gradients alone", Source: "Rajbhandari et al. 2020, ZeRO (arXiv:1910.02054), section 7.2.2: 1.5 times the volume of data parallelism",
		Options: func(b *Base) []Option {
			p := &b.Job.Program.Parallel
			if p.DDP == nil || p.Ranks < 2 || p.ZeRO != nil {
				return nil
			}
			return []Option{{Keys: keys(key("parallel", fmt.Sprintf("{fsdp: %d}", p.Ranks))), Text: "let each process hold a part of each parameter, gradient and state (FSDP2)",
				Code: lines("for block in model.blocks:", "    fully_shard(block)", "fully_shard(model)  # instead of DistributedDataParallel"),
				Work: func(w *Work) { w.Link += w.Microbatches * w.ParameterBytes }}}
		},
	},
)
