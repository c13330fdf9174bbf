package spec

import (
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/trainer"
)

// megatronExperts reports what Megatron refuses of mixtures of experts, and what of them is not
// modelled.
func (s *Spec) megatronExperts(a *Arguments) {
	experts, ep := a.Int("num_experts"), a.Int("expert_model_parallel_size")
	if experts == 0 {
		if ep > 1 {
			s.Errs.Addf(a.Span("expert_model_parallel_size"), "expert_model_parallel_size needs num_experts, Megatron says")
		}
		return
	}
	if !a.Bool("swiglu") && !a.Bool("no_bias_gelu_fusion") && !a.Bool("disable_bias_linear") {
		s.Errs.Addf(a.Span("no_bias_gelu_fusion"), "num_experts: without swiglu, experts need no_bias_gelu_fusion: true or disable_bias_linear: true, Megatron says")
	}
	if _, err := a.moeLayers(); err != "" {
		s.Errs.Addf(a.Span("moe_layer_freq"), "moe_layer_freq: %s", err)
	}
	if experts%ep != 0 {
		s.Errs.Addf(a.Span("num_experts"), "num_experts, %d, must be a multiple of expert_model_parallel_size, %d", experts, ep)
	}
	tp, etp := a.Int("tensor_model_parallel_size"), a.expertTensor()
	if tp > 1 && !a.Bool("sequence_parallel") {
		s.Errs.Addf(a.Span("num_experts"), "num_experts: with tensor_model_parallel_size, training needs sequence_parallel, Megatron says")
	}
	switch world, pp := a.world(), a.Int(pipelineSize); {
	case world%(ep*etp*pp) == 0:
	case pp > 1:
		s.Errs.Addf(a.Span("expert_model_parallel_size"), "world_size, %d, must be a multiple of expert_model_parallel_size (%d) times expert_tensor_parallel_size (%d) times %s (%d)", world, ep, etp, pipelineSize, pp)
	default:
		s.Errs.Addf(a.Span("expert_model_parallel_size"), "world_size, %d, must be a multiple of expert_model_parallel_size (%d) times expert_tensor_parallel_size (%d)", world, ep, etp)
	}
	if n := a.expertHidden(); n%etp != 0 {
		s.Errs.Addf(a.Span("moe_ffn_hidden_size"), "moe_ffn_hidden_size, %d, must be a multiple of expert_tensor_parallel_size, %d", n, etp)
	}
	if k := a.Int("moe_router_topk"); k > experts {
		s.Errs.Addf(a.Span("moe_router_topk"), "moe_router_topk, %d, must be at most num_experts, %d", k, experts)
	}
	refuse := func(name, what string) { s.Errs.Addf(a.Span(name), "%s: %s is not modelled", name, what) }
	if name := "moe_token_dispatcher_type"; a.Text(name) == "flex" {
		refuse(name, "flex")
	}
	if name := "moe_expert_capacity_factor"; a.Value(name) != nil {
		refuse(name, "dropping tokens")
	}
	if name := "moe_apply_probs_on_input"; a.Bool(name) {
		refuse(name, "weighting tokens before the experts")
	}
	if name := "moe_router_load_balancing_type"; a.Has(name) {
		if words, _ := a.words(name); len(words) != 1 || !slices.Contains([]string{"aux_loss", "sinkhorn", "none"}, words[0]) {
			s.Errs.Addf(a.Span(name), "%s: [%s] is not modelled; aux_loss, sinkhorn and none are", name, strings.Join(words, ", "))
		}
	}
	if name := "moe_grouped_gemm"; a.Bool(name) && a.Text("transformer_impl") != trainer.TransformerEngine {
		refuse(name, "GroupedMLP of local layers")
	} else if a.Bool(name) && !a.Bool("disable_bias_linear") {
		refuse(name, "biases of TEGroupedMLP; write disable_bias_linear: true")
	}
}

// expertTensor is how many GPUs share an expert.
func (a *Arguments) expertTensor() int64 {
	if n := a.Int("expert_tensor_parallel_size"); n > 0 {
		return n
	}
	return a.Int("tensor_model_parallel_size")
}

// replica is how many GPUs have one copy of the model.
func (a *Arguments) replica() int64 { return a.Int("tensor_model_parallel_size") * a.Int(pipelineSize) }

// world is how many GPUs there are: without world_size one replica of the model.
func (a *Arguments) world() int64 {
	if a.Has("world_size") {
		return a.Int("world_size")
	}
	return a.replica()
}

// hiddenOfMLP is ffn_hidden_size, or what Megatron takes without it (validate_args).
func (a *Arguments) hiddenOfMLP() int64 {
	n := a.Int("hidden_size")
	switch {
	case a.Int("ffn_hidden_size") > 0:
		return a.Int("ffn_hidden_size")
	case a.Bool("swiglu"):
		return 4 * n * 2 / 3 / 64 * 64
	}
	return 4 * n
}

// expertHidden is moe_ffn_hidden_size, or what Megatron takes without it.
func (a *Arguments) expertHidden() int64 {
	if n := a.Int("moe_ffn_hidden_size"); n > 0 {
		return n
	}
	return a.hiddenOfMLP()
}

// mostLayers is how many layers are planned at most, as lists of expressions have items.
const mostLayers = 1 << 12

// moeLayers says of each layer whether it has experts (get_gpt_decoder_block_spec in
// megatron/core/models/gpt/gpt_layer_specs.py), or what is wrong.
func (a *Arguments) moeLayers() (out []any, wrong string) {
	n := min(a.Int("num_layers"), mostLayers)
	const form = "an integer n, for every n-th layer, or a list with 0 or 1 for each layer, such as ([0]*1+[1]*15)"
	var x any = a.Value("moe_layer_freq")
	if v, ok := x.(*Value); ok {
		switch v.Kind {
		case Int:
			x = v.Int
		case Str:
			e, bad := parseExpr(v.Str)
			if bad != nil {
				return nil, "must be " + form
			}
			value, err := evalExpr(e, &paramEnv{})
			if err != nil {
				return nil, "must be " + form
			}
			x = value
		case List:
			var list []any
			for _, it := range v.Items {
				list = append(list, it.Int)
			}
			x = list
		}
	}
	switch x := x.(type) {
	case int64:
		if x < 1 {
			break
		}
		for i := range n {
			of := int64(0)
			if i%x == 0 {
				of = 1
			}
			out = append(out, of)
		}
		return out, ""
	case []any:
		for _, of := range x {
			if of != int64(0) && of != int64(1) {
				return nil, "must be " + form
			}
		}
		if int64(len(x)) == n {
			return x, ""
		}
	}
	return nil, "must be " + form
}

// megatronExpertParams are the params of mixtures of experts.
func (a *Arguments) megatronExpertParams(given map[string]any) {
	if a.Int("num_experts") == 0 {
		return
	}
	given["num_experts"], given["expert_model_parallel_size"] = a.Int("num_experts"), a.Int("expert_model_parallel_size")
	given["expert_tensor_parallel_size"], given["moe_router_topk"] = a.expertTensor(), a.Int("moe_router_topk")
	given["moe_layers"], _ = a.moeLayers()
	for _, name := range []string{"moe_ffn_hidden_size", "moe_shared_expert_intermediate_size", "moe_router_dtype"} {
		given[name] = a.Value(name)
	}
	given["moe_token_dispatcher_type"], given["balance"] = a.Text("moe_token_dispatcher_type"), a.Text("balance")
	given["moe_router_score_function"], given["moe_router_pre_softmax"] = a.Text("moe_router_score_function"), a.Bool("moe_router_pre_softmax")
	given["moe_router_topk_scaling_factor"] = a.Value("moe_router_topk_scaling_factor")
	given["sinkhorn"] = a.sinkhorn()
	given["aux_loss"], given["z_loss"] = a.auxiliary(), a.Value("moe_z_loss_coeff") != nil
	for _, name := range []string{"moe_grouped_gemm", "calculate_per_token_loss"} {
		given[name] = a.Bool(name)
	}
}

// auxiliary reports whether there is an auxiliary loss.
func (a *Arguments) auxiliary() bool {
	words, given := a.words("moe_router_load_balancing_type")
	if given && !slices.Contains(words, "aux_loss") {
		return false
	}
	v, ok := a.Value("moe_aux_loss_coeff").(*Value)
	if !ok {
		return false
	}
	n, err := strconv.ParseFloat(v.Str, 64)
	return v.Kind == List || err != nil || n != 0
}

// sinkhorn reports whether Sinkhorn's algorithm balances experts.
func (a *Arguments) sinkhorn() bool {
	words, _ := a.words("moe_router_load_balancing_type")
	return slices.Equal(words, []string{"sinkhorn"})
}
