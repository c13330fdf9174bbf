package advise

import (
	"fmt"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/nn"
)

// Changes of the model itself.
var _ = catalogue.add(
	Change{
		ID: "sdpa", Rank: 501, Title: "fused attention", Group: "attention", Technique: "Attention",
		Numerics: Same, Effort: Lines, Reach: Weights | Passing,
		Cost: "less: scores are neither written nor read", Source: "Dao et al. 2022, FlashAttention (arXiv:2205.14135): the same products, fewer bytes",
		Options: fusedAttention,
	},
	Change{
		ID: "chunk-loss", Rank: 502, Title: "a loss in chunks", Group: "loss", Technique: "A loss in chunks",
		Numerics: Same, Effort: Lines, Reach: Passing, Clever: true,
		Cost:    "the products of the last layer once more; its share of them is that of its weights",
		Source:  "Hsu et al. 2024, Liger Kernel (arXiv:2410.10989): logits of one part of the tokens at a time; recomputed as by a checkpoint",
		Options: chunkedLoss,
	},
	Change{
		ID: "lora", Rank: 503, Title: "low-rank adapters", Group: "adapters", Technique: "LoRA",
		Numerics: Different, Effort: Rewrite, Reach: Everything,
		Cost: "gradients of frozen weights are not computed, and only adapters are stepped", Source: `Hu et al. 2021, LoRA (arXiv:2106.09685), section 4.2: 25 % faster`,
		Options: func(b *Base) []Option { return adapters(b, false) },
	},
	Change{
		ID: "qlora", Rank: 504, Title: "low-rank adapters on a model in 4 bits", Group: "adapters", Technique: "Quantization",
		Numerics: Different, Effort: Rewrite, Reach: Everything,
		Cost: "as lora, and weights are unpacked in each pass", Source: "Dettmers et al. 2023, QLoRA (arXiv:2305.14314)",
		Options: func(b *Base) []Option { return adapters(b, true) },
	},
)

// attentionParams are the params of presets by which attention is written out
// in matrix products, and their other value.
var attentionParams = []struct {
	name string
	from any
	to   string
}{
	{"attn", "eager", "sdpa"},
	{"manual", true, "false"},
	{"need_weights", true, "false"},
}

func fusedAttention(b *Base) []Option {
	for _, p := range attentionParams {
		if path, v := b.param(p.name); path != "" && v == p.from {
			return []Option{{Keys: keys(estimate.Key{Path: path, Value: p.to}), Text: "compute attention with scaled_dot_product_attention, which keeps no scores",
				Code: lines("y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
					`# of transformers: AutoModel.from_pretrained(name, attn_implementation="sdpa")`)}}
		}
	}
	return nil
}

// chunkedLoss computes the logits of a language model for a part of the sequence
// at a time, where the model has a param for it. The parts are equal, so that the
// mean of their losses is the loss.
func chunkedLoss(b *Base) []Option {
	path, n := b.param("loss_chunks")
	_, seq := b.param("seq")
	_, vocab := b.param("vocab")
	_, width := b.param("d")
	length, ok := seq.(int64)
	if path == "" || n != int64(1) || !ok || !b.trains() {
		return nil
	}
	v, _ := vocab.(int64)
	d, _ := width.(int64)
	var out []Option
	for _, parts := range []int64{4, 16} {
		if length%parts != 0 {
			continue
		}
		out = append(out, Option{
			Name: fmt.Sprint(parts), Keys: keys(key(path, parts)), Text: fmt.Sprintf("compute logits and loss for %d parts of the sequence, one after the other", parts),
			Code: lines("def part(x, y): return F.cross_entropy(head(x).view(-1, vocab), y.reshape(-1))",
				"losses = [torch.utils.checkpoint.checkpoint(part, x, y, use_reentrant=False)",
				fmt.Sprintf("          for x, y in zip(hidden.chunk(%d, 1), target.chunk(%d, 1))]", parts, parts), "loss = torch.stack(losses).mean()"),
			Work: func(w *Work) {
				if w.Parameters > 0 {
					w.Passes += float64(v*d) / w.Parameters
				}
			},
		})
	}
	return out
}

// param is the path of a param of the model and its value: one of the spec, or
// of its preset.
func (b *Base) param(name string) (path string, value any) {
	s := b.Job.Spec
	if v, ok := s.Env.Lookup(name); ok && s.Given("params."+name) != nil {
		return "params." + name, v
	}
	if m := s.Model; m != nil && (m.Preset.Set || m.HF.Set) {
		if v, ok := b.Job.Definer.Env.Lookup(name); ok {
			return "model.with." + name, v
		}
	}
	return "", nil
}

// adapters freezes all weights and trains adapters of the linear layers, which
// PEFT looks for by itself.
func adapters(b *Base, quantized bool) []Option {
	s := b.Job.Spec
	if !b.trains() || s.Model == nil || s.LoRA != nil || s.Model.LoRA != nil || s.Freeze != nil || s.Model.Freeze != nil || s.Quantize != nil || s.Model.Quantize != nil ||
		s.Prune != nil || s.Train.EMA != nil || !b.has(func(l nn.Layer) bool { return l.Linear }) || b.blocks == nil || b.blocks.n == 0 {
		return nil
	}
	const rank = 16
	o := Option{Keys: keys(key("lora.r", rank)), Text: fmt.Sprintf("freeze the model and train adapters of rank %d", rank),
		Code: lines("from peft import LoraConfig, get_peft_model", fmt.Sprintf(`model = get_peft_model(model, LoraConfig(r=%d, target_modules="all-linear"))`, rank)),
		Work: func(w *Work) { w.train(0.02, 0) }}
	if quantized {
		if b.Job.Machine.Env.Arch < 75 {
			return nil
		}
		compute := "float16"
		if b.rate.bfloat16 {
			compute = "bfloat16"
		}
		o.Keys = append(o.Keys, key("quantize.bits", 4), key("quantize.compute_dtype", compute))
		o.Text = fmt.Sprintf("hold the linear layers in 4 bits and train adapters of rank %d", rank)
		o.Code = lines("from transformers import BitsAndBytesConfig",
			fmt.Sprintf(`config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.%s)`, compute),
			"model = AutoModelForCausalLM.from_pretrained(name, quantization_config=config)", "model = prepare_model_for_kbit_training(model)", o.Code)
		o.Work = func(w *Work) { w.train(0.02, 2) }
	}
	return []Option{o}
}

// train leaves a share of the parameters to train; unpacked is how often the
// weights are written in full for a microbatch.
func (w *Work) train(share, unpacked float64) {
	w.Passes -= 1 - share
	w.Optimizer *= share
	w.Host *= share
	w.GradientBytes *= share
	w.StateBytes *= share
	w.Forward += unpacked * w.Microbatches * w.Parameters * 2
}
