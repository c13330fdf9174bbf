package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// smallPresets draws params for each preset that make it small. Left out are
// those of several models, whose step is their own (dcgan, distillation), and
// gpt2, which is gpt with other params.
var smallPresets = map[string]func(g *generator) string{
	"alexnet": func(g *generator) string { return g.vision(63, 130) + g.classifierDropout() },
	"autoencoder": func(g *generator) string {
		return fmt.Sprintf("img: %d, channels: %d, width: %d, code: %d", g.multiple(8, 8, 64), g.size(1, 5), g.size(4, 20), g.size(8, 90))
	},
	"bert": func(g *generator) string {
		h := g.among(2, 4)
		return fmt.Sprintf("vocab: %d, d: %d, heads: %d, layers: %d, ff: %d, maxlen: %d, seq: %d, dropout: %s, norm_first: %v, labels: %d, act: %s",
			g.size(50, 2000), g.multiple(8*h, 32, 160), h, g.among(1, 2, 3), g.size(40, 400), g.size(90, 200), g.size(8, 90), g.pick("0.0", "0.1"), g.chance(0.5), g.size(2, 9), g.pick("gelu", "relu"))
	},
	"convnext": func(g *generator) string {
		return g.vision(32, 96) + fmt.Sprintf(", widths: %s, depths: [1, %d, 2, 1]", list(g.rising(4, 8, 40)), g.among(1, 2, 3))
	},
	"densenet": func(g *generator) string {
		return g.vision(32, 96) + fmt.Sprintf(", growth: %d, stages: [%d, 2, %d, 2]", g.size(4, 20), g.among(1, 2, 3), g.among(1, 2))
	},
	"dlrm": func(g *generator) string {
		return fmt.Sprintf("dense: %d, tables: [%d, %d, %d], bag: %d, mode: %s, d: %d, bottom: [%d, %d], top: [%d]", g.size(3, 20), g.size(20, 3000),
			g.size(20, 3000), g.size(20, 3000), g.size(1, 6), g.pick("sum", "mean"), g.multiple(4, 4, 60), g.size(10, 90), g.size(10, 90), g.size(10, 90))
	},
	"diffusion": func(g *generator) string {
		img := 8 * g.among(2, 4)
		return fmt.Sprintf("img: %d, channels: %d, base: %d, mults: [1, %d], blocks: %d, attention: [%d], heads: 2, groups: 4, dropout: %s",
			img, g.size(1, 4), g.multiple(8, 8, 40), g.among(1, 2, 3), g.among(1, 2), img/g.among(1, 2), g.pick("0.0", "0.1"))
	},
	"efficientnet": func(g *generator) string { return g.vision(32, 80) + ", net: " + g.pick("b0", "b0", "b1", "v2_s") },
	"googlenet":    func(g *generator) string { return g.vision(48, 96) + g.classifierDropout() },
	"gpt": func(g *generator) string {
		h := g.among(1, 2, 4)
		return fmt.Sprintf("vocab: %d, d: %d, heads: %d, layers: %d, ctx: %d, seq: %d, dropout: %s, tied: %v, manual: %v", g.size(50, 3000),
			g.multiple(8*h, 32, 160), h, g.among(1, 2, 3), g.size(100, 200), g.size(8, 100), g.pick("0.0", "0.1"), g.chance(0.5), g.chance(0.4))
	},
	"lenet": func(g *generator) string { return fmt.Sprintf("classes: %d", g.size(2, 90)) },
	"llama": func(g *generator) string {
		kv := g.among(1, 2)
		h := kv * g.among(1, 2, 4)
		return fmt.Sprintf("vocab: %d, d: %d, heads: %d, kv: %d, layers: %d, ff: %d, ctx: %d, seq: %d", g.size(50, 3000), g.multiple(8*h, 32, 200), h, kv,
			g.among(1, 2, 3), g.multiple(8, 40, 400), g.size(100, 200), g.size(8, 100))
	},
	"mha": func(g *generator) string {
		h := g.among(1, 2, 4)
		return fmt.Sprintf("d: %d, heads: %d, need_weights: %v, dropout: %s, classes: %d, seq: %d", g.multiple(8*h, 16, 150), h, g.chance(0.5), g.pick("0.0", "0.1"), g.size(2, 90), g.size(8, 100))
	},
	"mlp": func(g *generator) string {
		return fmt.Sprintf("sizes: [%d, %d, %d, %d], act: %s, dropout: %s", g.size(5, 500), g.size(5, 500), g.size(5, 500), g.size(2, 90), g.pick("relu", "gelu", "tanh", "silu"), g.pick("0.0", "0.3"))
	},
	"mlp_mixer": func(g *generator) string {
		p := g.among(4, 8)
		return fmt.Sprintf("img: %d, patch: %d, d: %d, tokens: %d, channels: %d, layers: %d, classes: %d, dropout: %s", p*g.size(2, 8), p, g.size(10, 100), g.size(10, 100),
			g.size(10, 100), g.among(1, 2), g.size(2, 90), g.pick("0.0", "0.2"))
	},
	"mnasnet": func(g *generator) string {
		return g.vision(32, 80) + ", alpha: " + g.pick("0.5", "0.75", "1.0") + g.classifierDropout()
	},
	"mobilenet_v2": func(g *generator) string { return g.vision(32, 80) + g.classifierDropout() },
	"mobilenet_v3": func(g *generator) string {
		return g.vision(32, 80) + ", net: " + g.pick("large", "small") + g.classifierDropout()
	},
	"regnet": func(g *generator) string {
		return g.vision(32, 64) + ", net: " + g.pick("x_400mf", "y_400mf", "y_800mf")
	},
	"resnet": func(g *generator) string {
		return g.vision(32, 96) + fmt.Sprintf(", depth: %s, nested: %v", g.pick("18", "34", "50", "50, groups: 32, width_per_group: 4"), g.chance(0.5))
	},
	"segmentation": func(g *generator) string {
		return fmt.Sprintf("classes: %d, img: %d, head: %s", g.size(2, 30), g.multiple(8, 56, 96), g.pick("fcn", "deeplabv3"))
	},
	"seq2seq": func(g *generator) string {
		h := g.among(1, 2, 4)
		return fmt.Sprintf("src_vocab: %d, tgt_vocab: %d, d: %d, heads: %d, encoder_layers: %d, decoder_layers: %d, ff: %d, dropout: %s, src_len: %d, tgt_len: %d, norm_first: %v",
			g.size(50, 900), g.size(50, 900), g.multiple(8*h, 32, 160), h, g.among(1, 2), g.among(1, 2), g.size(40, 300), g.pick("0.0", "0.1"), g.size(6, 60), g.size(6, 60), g.chance(0.5))
	},
	"shufflenet_v2": func(g *generator) string { return g.vision(32, 80) + ", width: " + g.pick("0.5", "1.0", "1.5") },
	"squeezenet": func(g *generator) string {
		return g.vision(48, 96) + ", version: " + g.pick("1.0", "1.1") + g.classifierDropout()
	},
	"swin": func(g *generator) string {
		return fmt.Sprintf("classes: %d, img: %d, depths: [2, %d, 2, 2]", g.size(2, 90), g.multiple(32, 64, 128), g.among(1, 2))
	},
	"unet": func(g *generator) string {
		return fmt.Sprintf("cin: %d, classes: %d, base: %d, depth: %d, img: %d", g.size(1, 5), g.size(2, 9), g.size(3, 16), g.among(1, 2, 3), g.multiple(8, 16, 80))
	},
	"vgg": func(g *generator) string {
		return g.vision(32, 64) + fmt.Sprintf(", depth: %s, bn: %v, inplace: %v, flat: %v", g.pick("11", "13", "16"), g.chance(0.5), g.chance(0.5), g.chance(0.5)) + g.classifierDropout()
	},
	"vision_transformer": func(g *generator) string {
		p, h := g.among(8, 16), g.among(2, 4)
		return fmt.Sprintf("classes: %d, img: %d, patch: %d, d: %d, heads: %d, depth: %d, dropout: %s, attention_dropout: %s", g.size(2, 90), p*g.size(2, 6), p,
			g.multiple(8*h, 32, 160), h, g.among(1, 2, 3), g.pick("0.0", "0.1"), g.pick("0.0", "0.1"))
	},
	"vit": func(g *generator) string {
		p, h := g.among(4, 8), g.among(1, 2, 4)
		return fmt.Sprintf("img: %d, patch: %d, d: %d, heads: %d, layers: %d, classes: %d, dropout: %s", p*g.size(2, 8), p, g.multiple(8*h, 16, 160), h, g.among(1, 2, 3), g.size(2, 90), g.pick("0.0", "0.1"))
	},
}

// among picks one of some numbers.
func (g *generator) among(ns ...int64) int64 { return ns[g.r.IntN(len(ns))] }

// rising draws n sizes, each above the one before.
func (g *generator) rising(n int, lo, hi int64) []int64 {
	var out []int64
	for range n {
		out = append(out, g.size(lo, hi))
	}
	slices.Sort(out)
	return out
}

// vision draws what all models of torchvision have.
func (g *generator) vision(lo, hi int64) string {
	return fmt.Sprintf("classes: %d, img: %d", g.size(2, 300), g.size(lo, hi))
}

func (g *generator) classifierDropout() string { return ", dropout: " + g.pick("0.0", "0.2", "0.5") }

// preset writes a job of a preset at a random small size.
func (g *generator) preset(seed uint64) (text, arch string) {
	arch = g.pick("sm70", "sm75", "sm80", "sm80", "sm86", "sm89", "sm90")
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(smallPresets)), func(name string) bool { return !g.takesImages(name) })
	name := names[int(seed)%len(names)]
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: %s-%d\n", name, seed)
	if g.infer = g.chance(0.12); g.infer {
		fmt.Fprintf(&b, "mode: %s\n", g.pick("no_grad", "inference"))
	}
	fmt.Fprintf(&b, "model: {preset: %s, with: {%s}}\n", name, smallPresets[name](g))
	g.bf16 = g.chance(0.25)
	g.train(&b, g.size(2, 12))
	return b.String(), arch
}
