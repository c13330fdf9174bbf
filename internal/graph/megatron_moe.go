package graph

import (
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/spec"
)

// megatronExperts is the file with the blocks of Megatron's mixtures of experts.
const megatronExperts = "megatron/moe"

// routerType is the param that types of buffers name, which are read with the file.
const routerType = "router_dtype"

// shareMegatron adds the blocks of Megatron's mixtures of experts to those of its model, whose
// params they name.
func (el *building) shareMegatron(s *spec.Spec) {
	text, err := el.opts.Preset(megatronExperts)
	if err != nil {
		el.fail(s.Model.Preset.At, "%v", err)
	}
	router, _ := s.Env.Lookup(routerType)
	shared, err := spec.Parse("preset:"+megatronExperts, text, spec.Options{Own: true, Params: map[string]any{routerType: router}, Meter: el.meter})
	if err != nil {
		el.fail(s.Model.Preset.At, "preset %s: %v", megatronExperts, err)
	}
	el.others = append(el.others, shared.Errs)
	shared.Inherit(s)
	s.Share(shared)
}

// megatronBalance says of how many tokens of experts the figures are, which the data decide.
func (el *building) megatronBalance() {
	a := el.spec.Trainer.Args()
	if a.Int("num_experts") == 0 {
		return
	}
	const key = "trainer.megatron.balance"
	what := "each expert gets as many tokens"
	if a.Text("balance") == "worst" {
		what = "the experts of this GPU get all tokens that they may"
	}
	el.notModelled = append(el.notModelled, note.Asked.New("%s: how many tokens experts get, which the router decides; planned is %s: %s", key, a.Text("balance"), what).Of(key))
}
