package graph

import "github.com/memplan/memplan/internal/spec"

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
