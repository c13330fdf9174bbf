package trainer

import "slices"

// Optimizer is what a name of optim means.
type Optimizer struct {
	Name string
	// Row is the name of memplan's optimizer; "": it has none, and Missing says what
	// the figures are then.
	Row     string
	Args    map[string]any // that the name implies
	Adam    bool           // takes betas and eps
	Numbers []string       // of optim_args, that Trainer reads
	Flags   []string       // of optim_args, that Trainer reads
	Missing string
}

// The optimizer that is planned in place of one that is not modelled.
const standIn = "; the figures are those of AdamW, and no upper bound"

// in32 is what Trainer tells bitsandbytes' GlobalOptimManager if states have 8 bits.
var in32 = map[string]any{"embeddings_32bit": true}

// ao is what Trainer tells torchao's optimizers, of 4 bits, too.
var ao = map[string]any{"block_size": int64(256)}

// ademamix are the numbers of optim_args that AdEMAMix takes, but for its betas.
var ademamix = []string{"alpha", "eps", "t_alpha", "t_beta3"}

// Optimizers lists the names of optim (transformers/trainer_optimizer.py). The decay of
// weights is that of the groups: weight_decay of optim_args has no effect.
var Optimizers = []Optimizer{
	{Name: "adamw_torch", Row: "AdamW", Adam: true},
	{Name: "adamw_torch_fused", Row: "AdamW", Adam: true, Args: map[string]any{"fused": true}},
	{Name: "adamw_hf", Row: "AdamW", Adam: true},
	{Name: "adafactor", Row: "transformers.Adafactor", Args: map[string]any{"scale_parameter": false, "relative_step": false}},
	{Name: "sgd", Row: "SGD", Numbers: []string{"momentum", "dampening"}, Flags: []string{"nesterov"}},
	{Name: "adagrad", Row: "Adagrad", Numbers: []string{"lr_decay", "eps"}},
	{Name: "rmsprop", Row: "RMSprop", Numbers: []string{"momentum", "alpha", "eps"}, Flags: []string{"centered"}},
	{Name: "adamw_bnb_8bit", Row: "AdamW8bit", Adam: true, Args: in32},
	{Name: "adamw_8bit", Row: "AdamW8bit", Adam: true, Args: in32},
	{Name: "paged_adamw_32bit", Row: "PagedAdamW", Adam: true},
	{Name: "paged_adamw_8bit", Row: "PagedAdamW8bit", Adam: true, Args: in32},
	{Name: "lion_8bit", Row: "Lion8bit", Args: in32},
	{Name: "paged_lion_32bit", Row: "PagedLion"},
	{Name: "paged_lion_8bit", Row: "PagedLion8bit", Args: in32},
	{Name: "lion_32bit", Row: "Lion32bit"},
	{Name: "ademamix", Row: "AdEMAMix", Numbers: ademamix},
	{Name: "ademamix_8bit", Row: "AdEMAMix8bit", Args: in32, Numbers: ademamix},
	{Name: "paged_ademamix_32bit", Row: "PagedAdEMAMix", Numbers: ademamix},
	{Name: "paged_ademamix_8bit", Row: "PagedAdEMAMix8bit", Args: in32, Numbers: ademamix},
	{Name: "rmsprop_bnb", Row: "RMSprop32bit"},
	{Name: "rmsprop_bnb_8bit", Row: "RMSprop8bit", Args: in32},
	{Name: "rmsprop_bnb_32bit", Row: "RMSprop32bit"},
	{Name: "adamw_torch_4bit", Row: "torchao.AdamW4bit", Adam: true, Args: ao, Flags: []string{"bf16_stochastic_round"}},
	{Name: "adamw_torch_8bit", Row: "torchao.AdamW8bit", Adam: true, Args: ao, Flags: []string{"bf16_stochastic_round"}},
	{Name: "adamw_torch_xla", Missing: "AdamW of PyTorch/XLA"},
	{Name: "adamw_torch_npu_fused", Missing: "AdamW of torch_npu"},
	{Name: "adamw_apex_fused", Missing: "FusedAdam of Apex"},
	{Name: "adamw_anyprecision", Missing: "AnyPrecisionAdamW"},
	{Name: "galore_adamw", Missing: "GaLore"},
	{Name: "galore_adamw_8bit", Missing: "GaLore"},
	{Name: "galore_adafactor", Missing: "GaLore"},
	{Name: "galore_adamw_layerwise", Missing: "GaLore"},
	{Name: "galore_adamw_8bit_layerwise", Missing: "GaLore"},
	{Name: "galore_adafactor_layerwise", Missing: "GaLore"},
	{Name: "apollo_adamw", Missing: "APOLLO"},
	{Name: "apollo_adamw_layerwise", Missing: "APOLLO"},
	{Name: "lomo", Missing: "LOMO, which steps in the backward pass"},
	{Name: "adalomo", Missing: "AdaLomo, which steps in the backward pass"},
	{Name: "grokadamw", Missing: "GrokAdamW"},
	{Name: "stable_adamw", Missing: "StableAdamW"},
	{Name: "schedule_free_radam", Missing: "schedule-free RAdam"},
	{Name: "schedule_free_adamw", Row: "AdamWScheduleFree", Adam: true},
	{Name: "schedule_free_sgd", Missing: "schedule-free SGD"},
}

// OptimizerNames lists the names of optim.
func OptimizerNames() []string {
	out := make([]string, len(Optimizers))
	for i, o := range Optimizers {
		out[i] = o.Name
	}
	return out
}

// OptimizerOf is the row of a name.
func OptimizerOf(name string) *Optimizer {
	i := slices.IndexFunc(Optimizers, func(o Optimizer) bool { return o.Name == name })
	if i < 0 {
		return nil
	}
	return &Optimizers[i]
}

// Doubt is what the figures are without an optimizer.
func (o *Optimizer) Doubt() string { return o.Missing + " is not modelled" + standIn }
