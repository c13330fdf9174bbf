package torchver

// optimizers lists what torch.optim has on GPUs that is younger than Oldest: the
// release line that first has it, and the pull request that added it.
var optimizers = []struct {
	name   string
	since  Version
	source string
}{
	{"Muon", Version{2, 9}, "PR 160213"},
	{"Adagrad fused", Version{2, 12}, "PR 177672"},
}

// OptimizerSince returns the first release that has the named optimizer, or the
// named implementation of one ("Adagrad fused"), and the pull request that added
// it. For what Oldest has already it returns Oldest and "".
func OptimizerSince(name string) (since Version, source string) {
	for _, o := range optimizers {
		if o.name == name {
			return o.since, o.source
		}
	}
	return Oldest, ""
}
