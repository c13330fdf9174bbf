package torchver

import "fmt"

// optimizers lists what torch.optim has on GPUs that is younger than Oldest.
var optimizers = []struct {
	name string
	*Change
}{
	{"Muon", optimizer("`%s` is there.", "Muon", Version{2, 9}, "PR 160213")},
	{"Adagrad fused", optimizer("`%s` has `fused=True` on GPUs.", "Adagrad", Version{2, 12}, "PR 177672")},
}

func optimizer(what, name string, since Version, source string) *Change {
	return change(Change{
		Since: since, Area: stepping, What: fmt.Sprintf(what, "torch.optim."+name), Source: source, Held: "internal/optim TestReleases",
	})
}

// OptimizerSince returns the first release that has the named optimizer, or the
// named implementation of one ("Adagrad fused"), and the pull request that added
// it. For what Oldest has already it returns Oldest and "".
func OptimizerSince(name string) (since Version, source string) {
	for _, o := range optimizers {
		if o.name == name {
			return o.Since, o.Source
		}
	}
	return Oldest, ""
}

// TrainerFusedAdamW: transformers, of releases that read PyTorch's.
var TrainerFusedAdamW = change(Change{
	Since: Version{2, 8}, Area: stepping,
	What:   "The default of transformers' `optim` is `adamw_torch_fused`; before, `adamw_torch`.",
	Source: "transformers/training_args.py: default_optim", Held: "internal/estimate TestTrainerReleases",
})
