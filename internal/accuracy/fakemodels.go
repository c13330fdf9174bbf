package accuracy

import (
	"fmt"
	"maps"
	"strings"
)

// fakeModels maps the models that were recorded with fake tensors to presets;
// models of transformers are read from their config.json.
var fakeModels = map[string]preset{
	"resnet18":           {"resnet", map[string]any{"depth": 18}},
	"resnet50":           {"resnet", map[string]any{"depth": 50}},
	"vgg16":              {"vgg", map[string]any{"depth": 16}},
	"vit_b_16":           {name: "vision_transformer"},
	"mobilenet_v3_large": {"mobilenet_v3", map[string]any{"net": "large"}},
	"mobilenet_v3_small": {"mobilenet_v3", map[string]any{"net": "small"}},
	"efficientnet_b0":    {name: "efficientnet"},
	"unet":               {"unet", map[string]any{"base": 64}},
}

// model is the spec's section for the recorded model.
func (r *FakeRecording) model() string {
	m := r.Model
	switch {
	case m.Lib == "transformers":
		with := map[string]any{"attn": m.Attention, "seq": r.Seq}
		if m.Mask {
			with["mask"] = "ones"
		}
		return fmt.Sprintf("model: {hf: config.json, task: %s, with: %s}\n", hfTasks[m.Task], yamlMap(with))
	case m.Name == "mlp":
		return m.mlp()
	case m.Name == "smallgpt":
		return fmt.Sprintf(smallGPT, r.Seq)
	}
	p := fakeModels[m.Name]
	with := map[string]any{"img": r.Img}
	maps.Copy(with, p.with)
	return fmt.Sprintf("model: {preset: %s, with: %s}\n", p.name, yamlMap(with))
}

// mlp is the recorded multilayer perceptron: between linear layers a norm, an
// activation and dropout, the latter two if asked for.
func (m *FakeModel) mlp() string {
	layers := map[string]string{"relu": "ReLU", "relu_": "ReLU: {inplace: true}", "gelu": "GELU", "silu": "SiLU", "layernorm": "LayerNorm", "batchnorm": "BatchNorm1d"}
	dims := m.Args["dims"].([]any)
	act, _ := m.Args["act"].(string)
	if act == "" {
		act = "relu"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "model:\n  inputs: {x: [%v], y: {shape: [], dtype: int64}}\n  layers:\n    - Sequential:\n", dims[0])
	for i, d := range dims[1:] {
		fmt.Fprintf(&b, "        - Linear: %v\n", d)
		if i == len(dims)-2 {
			break
		}
		if n, ok := m.Args["norm"].(string); ok {
			fmt.Fprintf(&b, "        - %s\n", layers[n])
		}
		fmt.Fprintf(&b, "        - %s\n", layers[act])
		if p, ok := m.Args["dropout"]; ok {
			fmt.Fprintf(&b, "        - Dropout: %v\n", p)
		}
	}
	b.WriteString("  loss: {cross_entropy: {target: y}}\n")
	return b.String()
}

// smallGPT is the recorded GPT of 124 million parameters: as the preset gpt,
// without biases and dropout.
const smallGPT = `params: {d: 768, heads: 12, seq: %d}
model:
  inputs: {ids: {shape: ["${seq}"], dtype: int64}, y: {shape: ["${seq}"], dtype: int64}}
  blocks:
    block:
      modules:
        ln1: {LayerNorm: {bias: false}}
        ln2: {LayerNorm: {bias: false}}
        qkv: {Linear: {out_features: "${3 * d}", bias: false}}
        proj: {Linear: {out_features: "${d}", bias: false}}
        fc: {Linear: {out_features: "${4 * d}", bias: false}}
        out: {Linear: {out_features: "${d}", bias: false}}
      layers:
        - {split: ["${d}", 2], inputs: [{call: qkv, inputs: [{call: ln1, inputs: x}]}], name: [q, k, v]}
        - {block: split_heads, inputs: q, name: q}
        - {block: split_heads, inputs: k, name: k}
        - {block: split_heads, inputs: v, name: v}
        - {scaled_dot_product_attention: {is_causal: true}, inputs: [q, k, v], name: y}
        - {reshape: ["${x.shape[0]}", "${x.shape[1]}", "${d}"], inputs: [{transpose: [1, 2], inputs: y}], name: y}
        - {add: [x, {call: proj, inputs: y}], name: x}
        - return: {add: [x, {call: out, inputs: [{gelu: tanh, inputs: [{call: fc, inputs: [{call: ln2, inputs: x}]}]}]}]}
    split_heads:
      kind: function
      inputs: [t]
      layers:
        - transpose: [1, 2]
          inputs: [{view: ["${t.shape[0]}", "${t.shape[1]}", "${heads}", "${d // heads}"], inputs: t}]
  modules:
    wte: {Embedding: [50304, "${d}"]}
    wpe: {Embedding: [1024, "${d}"]}
    blocks: {block: block, repeat: 12}
    lnf: {LayerNorm: {bias: false}}
    head: {Linear: {out_features: 50304, bias: false}, tie: {weight: wte.weight}}
  layers:
    - {add: [{call: wte, inputs: ids}, {call: wpe, inputs: [{arange: "${ids.shape[1]}"}]}], name: x}
    - {call: "blocks[${i}]", repeat: {n: 12, as: i}}
    - return: {call: head, inputs: [{call: lnf, inputs: x}]}
  checkpoint: blocks
  loss: {cross_entropy: {input: {view: [-1, 50304], inputs: out}, target: {view: [-1], inputs: y}}}
`
