package main

import (
	"fmt"
	"strings"
)

// breadthJob is a program of the less common operators.
func (g *generator) breadthJob(seed uint64) (text, arch string) {
	g.breadth = 0.6
	return g.spec(seed)
}

// template is an entry with holes: $x is the current value, $y another one of its
// shape, $0 to $3 its sizes. shape says what becomes of the sizes, nil that they
// stay; ok, which sizes it takes.
type template struct {
	entry string
	shape func(s []int64) []int64
	ok    func(s []int64) bool
	view  bool
}

func along(d int, n func(n int64) int64) func(s []int64) []int64 {
	return func(s []int64) []int64 { return with(s, d, n(s[d])) }
}

func one(int64) int64 { return 1 }

// grown adds to the last sizes, the last first.
func grown(by ...int64) func(s []int64) []int64 {
	return func(s []int64) []int64 {
		t := append([]int64(nil), s...)
		for i, n := range by {
			t[len(t)-1-i] += n
		}
		return t
	}
}

// halved divides the last n sizes.
func halved(n int) func(s []int64) []int64 {
	return func(s []int64) []int64 {
		t := append([]int64(nil), s...)
		for i := len(t) - n; i < len(t); i++ {
			t[i] /= 2
		}
		return t
	}
}

// least wants sizes behind the channels of at least n.
func least(n int64) func(s []int64) bool {
	return func(s []int64) bool {
		for _, d := range s[2:] {
			if d < n {
				return false
			}
		}
		return true
	}
}

func small(s []int64) bool { return numel(s) <= 1<<15 }

// pointwise are the functions that suit any shape.
var pointwise = strings.Fields(`acos acosh asin asinh atan atanh cosh sinh tan erf erfc erfinv exp2 expm1 lgamma digamma log10 log1p log2 logit
	sign floor ceil trunc round frac nan_to_num celu selu rrelu hardshrink softshrink softsign tanhshrink alpha_dropout feature_alpha_dropout`)

// pointwiseLayers are their layers, which a function cannot hold.
var pointwiseLayers = strings.Fields(`CELU SELU RReLU Hardshrink Softshrink Softsign Tanhshrink LogSigmoid AlphaDropout FeatureAlphaDropout
	CELU:{inplace:true} SELU:{inplace:true} Threshold:[0.1,0.2] Threshold:[0.1,0.2,true]`)

// anyShape suits values of every rank.
var anyShape = []template{
	{entry: "{threshold: [0.1, 0.2], inputs: $x}"},
	{entry: "{softmin: 1, inputs: $x}"},
	{entry: "{gumbel_softmax: {tau: 0.5}, inputs: $x}"},
	{entry: "{gumbel_softmax: {hard: true}, inputs: $x}"},
	{entry: "{pow: 3, inputs: $x}"},
	{entry: "{pow: 0.5, inputs: $x}"},
	{entry: "{hypot: [$x, $y]}"},
	{entry: "{atan2: [$x, $y]}"},
	{entry: "{logaddexp: [$x, $y]}"},
	{entry: "{fmod: [$x, 2.0]}"},
	{entry: "{remainder: [$x, $y]}"},
	{entry: "{addcmul: {input: $x, tensor1: $y, tensor2: $x, value: 0.3}}"},
	{entry: "{addcdiv: [$x, $y, $x]}"},
	{entry: "{lerp: [$x, $y, 0.3]}"},
	{entry: "{lerp: [$x, $y, $x]}"},
	{entry: "{pow: [$x, $y]}"},
	{entry: "{sub: [1, $x]}"},
	{entry: "{div: [2.0, $x]}"},
	{entry: "{masked_fill: [$x, {gt: [$y, 0]}, {detach: , inputs: [{mean: , inputs: $y}]}]}"},
	{entry: "{maximum: [$x, {mean: , inputs: $y}]}"},
	{entry: "{where: [{lt: [$x, 0]}, $y, {sum: , inputs: $x}]}"},
	{entry: "{add: [$x, {gt: [$y, 0]}]}"},
	{entry: "{mul: [$x, {long: , inputs: [{gt: [$y, 0]}]}]}"},
	{entry: "{add: [$x, {bucketize: [{detach: , inputs: $y}, {type_as: [{linspace: [0.0, 1.0, 9]}, $y]}]}]}"},
	{entry: "{mul: [$x, {rand_like: , inputs: $y}]}"},
	{entry: "{add: [$x, {new_full: {size: [1], fill_value: 0.5}, inputs: $y}]}"},
	{entry: "{cumprod: 1, inputs: $x}"},
	{entry: "{cummax: 1, inputs: $x, pick: 0}"},
	{entry: "{prod: {dim: 1, keepdim: true}, inputs: $x}", shape: along(1, one)},
	{entry: "{norm: {p: 3, dim: 1, keepdim: true}, inputs: $x}", shape: along(1, one)},
	{entry: "{median: {dim: 1, keepdim: true}, inputs: $x, pick: 0}", shape: along(1, one), ok: small},
	{entry: "{kthvalue: {k: 1, dim: 1, keepdim: true}, inputs: $x, pick: 0}", shape: along(1, one), ok: small},
	{entry: "{index_fill: {input: $x, dim: 1, index: {arange: 1}, value: 0.5}}"},
	{entry: "{index_add: {input: $x, dim: 0, index: {arange: $0}, source: $y}}", ok: small},
	{entry: "{div: [$x, {norm: {p: 4}, inputs: $y}]}"},
	{entry: "{unflatten: [1, [1, $1]], inputs: [{flatten: [1, 1], inputs: $x}]}", shape: func(s []int64) []int64 {
		return append([]int64{s[0], 1}, s[1:]...)
	}, ok: func(s []int64) bool { return len(s) < 4 }, view: true},
}

// byRank are the templates for matrices, sequences and images.
var byRank = map[int][]template{
	2: {
		{entry: "{diag_embed: , inputs: $x}", shape: func(s []int64) []int64 { return []int64{s[0], s[1], s[1]} }, ok: func(s []int64) bool { return s[1] < 150 }},
		{entry: "{pairwise_distance: {x1: $x, x2: $y, keepdim: true}}", shape: along(1, one)},
		{entry: "{einsum: ['bi,bi->bi', $x, $y]}"},
		{entry: "{einsum: ['bi,bj->bij', $x, $y]}", shape: func(s []int64) []int64 { return []int64{s[0], s[1], s[1]} }, ok: func(s []int64) bool { return s[1] < 150 }},
	},
	3: {
		{entry: "{einsum: ['bij->bji', $x]}", shape: func(s []int64) []int64 { return []int64{s[0], s[2], s[1]} }, view: true},
		{entry: "{einsum: ['bij,bik->bjk', $x, $y]}", shape: func(s []int64) []int64 { return []int64{s[0], s[2], s[2]} }},
		{entry: "{einsum: ['...ij,...kj->...ik', $x, $y]}", shape: func(s []int64) []int64 { return []int64{s[0], s[1], s[1]} }},
		{entry: "{einsum: ['bij,bik,bkl->bil', $x, {tanh: , inputs: $y}, {transpose: [1, 2], inputs: $y}]}",
			shape: func(s []int64) []int64 { return []int64{s[0], s[1], s[1]} }, ok: func(s []int64) bool { return s[1] == s[2] }},
		{entry: "{pad: {pad: [2, 1], mode: reflect}, inputs: $x}", shape: grown(3), ok: least(3)},
		{entry: "{pad: {pad: [2, 1], mode: replicate}, inputs: $x}", shape: grown(3)},
		{entry: "{pad: {pad: [2, 1], mode: circular}, inputs: $x}", shape: grown(3), ok: least(2)},
		{entry: "{pad: [[1, -1, 0, 1]], inputs: $x}", shape: grown(0, 1), ok: least(2)},
		{entry: "{max_pool1d: 2, inputs: $x}", shape: halved(1), ok: least(4)},
		{entry: "{avg_pool1d: 2, inputs: $x}", shape: halved(1), ok: least(4)},
		{entry: "{lp_pool1d: [2.0, 2], inputs: $x}", shape: halved(1), ok: least(4)},
		{entry: "{unfold_dimension: {dimension: 2, size: 2, step: 1}, inputs: $x}", shape: func(s []int64) []int64 { return []int64{s[0], s[1], s[2] - 1, 2} }, ok: least(3), view: true},
		{entry: "{unfold_dimension: {dimension: 2, size: 2, step: 2}, inputs: $x}", shape: func(s []int64) []int64 { return []int64{s[0], s[1], s[2] / 2, 2} }, ok: least(3), view: true},
		{entry: "{instance_norm: , inputs: $x}", ok: least(2)},
		{entry: "{cosine_similarity: {x1: {unsqueeze: -1, inputs: $x}, x2: {unsqueeze: -1, inputs: $y}, dim: -1}}"},
		{entry: "{swapaxes: [1, 2], inputs: $x}", shape: func(s []int64) []int64 { return []int64{s[0], s[2], s[1]} }, view: true},
		{entry: "{dropout1d: 0.2, inputs: $x}"},
	},
	4: {
		{entry: "{pad: {pad: [1, 2, 2, 1], mode: reflect}, inputs: $x}", shape: grown(3, 3), ok: least(3)},
		{entry: "{pad: {pad: [1, 2, 2, 1], mode: replicate}, inputs: $x}", shape: grown(3, 3)},
		{entry: "{pad: {pad: [1, 2, 2, 1], mode: circular}, inputs: $x}", shape: grown(3, 3), ok: least(3)},
		{entry: "{channel_shuffle: 2, inputs: $x}", ok: func(s []int64) bool { return s[1]%2 == 0 }},
		{entry: "{pixel_unshuffle: 2, inputs: $x}", shape: func(s []int64) []int64 { return []int64{s[0], 4 * s[1], s[2] / 2, s[3] / 2} },
			ok: func(s []int64) bool { return s[2]%2 == 0 && s[3]%2 == 0 && s[1] < 60 }},
		{entry: "{unfold: {kernel_size: [3, 2], padding: 1}, inputs: $x}", shape: func(s []int64) []int64 { return []int64{s[0], 6 * s[1], s[2] * (s[3] + 1)} }, ok: small},
		{entry: "{fold: {output_size: [$2, $3], kernel_size: [3, 2], padding: 1}, inputs: [{unfold: {kernel_size: [3, 2], padding: 1}, inputs: $x}]}", ok: small},
		{entry: "{lp_pool2d: [2.0, 2], inputs: $x}", shape: halved(2), ok: least(4)},
		{entry: "{max_pool2d: 2, inputs: $x}", shape: halved(2), ok: least(4)},
		{entry: "{adaptive_max_pool2d: 2, inputs: $x}", shape: func(s []int64) []int64 { return []int64{s[0], s[1], 2, 2} }, ok: least(4)},
		{entry: "{fractional_max_pool2d: {kernel_size: 2, output_size: [2, 3]}, inputs: $x}", shape: func(s []int64) []int64 { return []int64{s[0], s[1], 2, 3} }, ok: least(6)},
		{entry: "{interpolate: {size: [5, 6], mode: area}, inputs: $x}", shape: func(s []int64) []int64 { return []int64{s[0], s[1], 5, 6} }, ok: least(6)},
		{entry: "{interpolate: {size: [5, 6], mode: nearest-exact}, inputs: $x}", shape: func(s []int64) []int64 { return []int64{s[0], s[1], 5, 6} }},
		{entry: "{local_response_norm: 3, inputs: $x}"},
		{entry: "{grid_sample: {input: $x, grid: {affine_grid: {theta: {zeros: [$0, 2, 3]}, size: [$0, 2, 5, 7]}}}}",
			shape: func(s []int64) []int64 { return []int64{s[0], s[1], 5, 7} }},
		{entry: "{movedim: {source: 1, destination: 3}, inputs: $x}", shape: func(s []int64) []int64 { return []int64{s[0], s[2], s[3], s[1]} }, view: true},
		{entry: "{einsum: ['bchw->bhwc', $x]}", shape: func(s []int64) []int64 { return []int64{s[0], s[2], s[3], s[1]} }, view: true},
		{entry: "{dropout2d: 0.2, inputs: $x}"},
	},
}

// layersByRank are the templates that make layers.
var layersByRank = map[int][]template{
	3: {
		{entry: "{Conv1d: {out_channels: $1, kernel_size: 3, padding: 1, padding_mode: reflect}, inputs: $x}", ok: least(2)},
		{entry: "{Conv1d: {out_channels: $1, kernel_size: 3, padding: same, padding_mode: circular}, inputs: $x}", ok: least(2)},
		{entry: "{CircularPad1d: [1, 2], inputs: $x}", shape: grown(3), ok: least(3)},
		{entry: "{InstanceNorm1d: {affine: true}, inputs: $x}", ok: least(2)},
	},
	4: {
		{entry: "{Conv2d: {out_channels: $1, kernel_size: 3, padding: 1, padding_mode: reflect}, inputs: $x}", ok: least(2)},
		{entry: "{Conv2d: {out_channels: $1, kernel_size: [3, 2], padding: same, padding_mode: replicate}, inputs: $x}"},
		{entry: "{Conv2d: {out_channels: $1, kernel_size: 3, padding: 1, padding_mode: circular, bias: false}, inputs: $x}", ok: least(2)},
		{entry: "{ReflectionPad2d: [1, 2, 2, 1], inputs: $x}", shape: grown(3, 3), ok: least(3)},
		{entry: "{ZeroPad2d: [1, -1, 2, 1], inputs: $x}", shape: grown(0, 3), ok: least(2)},
		{entry: "{ChannelShuffle: 2, inputs: $x}", ok: func(s []int64) bool { return s[1]%2 == 0 }},
		{entry: "{Softmax2d: , inputs: $x}"},
		{entry: "{MaxUnpool2d: 2, inputs: [{MaxPool2d: 2, inputs: $x}, {max_pool2d: {kernel_size: 2, return_indices: true}, inputs: $x, pick: 1}]}",
			shape: func(s []int64) []int64 { return []int64{s[0], s[1], s[2] / 2 * 2, s[3] / 2 * 2} }, ok: least(4)},
		{entry: "{UpsamplingBilinear2d: {size: [5, 6]}, inputs: $x}", shape: func(s []int64) []int64 { return []int64{s[0], s[1], 5, 6} }},
	},
}

// rare writes one of the less common operators, or reports that none suits the
// current value.
func (b *body) rare() bool {
	g, s := b.g, b.cur.shape
	if numel(s) > 1<<18 || len(s) < 2 {
		return false
	}
	if b.module && g.chance(0.15) {
		switch len(s) {
		case 3:
			return b.masked()
		case 4:
			return b.functionalConv()
		}
	}
	list := anyShape
	switch {
	case g.chance(0.2):
		if b.module && g.chance(0.5) {
			return b.template(template{entry: pointwiseLayer(g.pick(pointwiseLayers...)), view: b.cur.view})
		}
		return b.template(template{entry: "{" + g.pick(pointwise...) + ": , inputs: $x}"})
	case b.module && g.chance(0.3) && layersByRank[len(s)] != nil:
		list = layersByRank[len(s)]
	case g.chance(0.6):
		list = byRank[len(s)]
	}
	return b.template(list[g.r.IntN(len(list))])
}

// pointwiseLayer makes an entry of a layer's name with or without arguments.
func pointwiseLayer(text string) string {
	name, args, _ := strings.Cut(text, ":")
	return fmt.Sprintf("{%s: %s, inputs: $x}", name, strings.NewReplacer(":", ": ", ",", ", ").Replace(args))
}

// template fills the holes of a template and writes it.
func (b *body) template(t template) bool {
	s := b.cur.shape
	if t.ok != nil && !t.ok(s) || strings.Contains(t.entry, "inplace:true") && b.cur.view {
		return false
	}
	y := "{tanh: , inputs: " + b.cur.name + "}"
	if p, ok := b.partner(); ok && b.g.chance(0.6) {
		y = p.name
	}
	holes := []string{"$x", b.cur.name, "$y", y}
	for i, n := range s {
		holes = append(holes, fmt.Sprintf("$%d", i), fmt.Sprint(n))
	}
	b.emit("%s", strings.NewReplacer(holes...).Replace(t.entry))
	if t.shape != nil {
		s = t.shape(s)
	}
	b.result("", s, t.view)
	return true
}

// functionalConv convolves by weights that are parameters of a block.
func (b *body) functionalConv() bool {
	g, s := b.g, b.cur.shape
	g.nBlock++
	name, out := fmt.Sprintf("b%d", g.nBlock), g.size(2, 24)
	bias := g.pick("", ", bias: c")
	entry := fmt.Sprintf("{conv2d: {weight: k%s, padding: 1}}", bias)
	weight := []int64{out, s[1], 3, 3}
	if g.chance(0.4) {
		entry = fmt.Sprintf("{conv_transpose2d: {weight: k%s, padding: 1}}", bias)
		weight = []int64{s[1], out, 3, 3}
	}
	g.blocks = append(g.blocks, fmt.Sprintf("    %s:\n      parameters: {k: {shape: %s}, c: {shape: [%d]}}\n      layers:\n        - %s\n", name, list(weight), out, entry))
	b.emit("{block: %s, inputs: %s}", name, b.cur.name)
	b.result("", []int64{s[0], out, s[2], s[3]}, false)
	return true
}

// masked attends with masks, as an attention, an encoder or a decoder layer.
func (b *body) masked() bool {
	g, s, x := b.g, b.cur.shape, b.cur.name
	n, t, d := s[0], s[1], s[2]
	if d > 128 || t > 128 || t < 2 {
		return false
	}
	heads := int64(1)
	for _, h := range []int64{2, 3, 4} {
		if d%h == 0 && g.chance(0.5) {
			heads = h
		}
	}
	causal := fmt.Sprintf("{triu: {input: {bool: , inputs: [{ones: [%d, %d]}]}, diagonal: 1}}", t, t)
	if g.chance(0.5) && !g.bf16 {
		causal = fmt.Sprintf("{generate_square_subsequent_mask: %d}", t)
	}
	padding := fmt.Sprintf("{bool: , inputs: [{zeros: [%d, %d]}]}", n, t)
	pick := func(name, mask string) string {
		if g.chance(0.5) {
			return ""
		}
		return ", " + name + ": " + mask
	}
	causality := func(name string) string { return g.pick("", "", ", "+name+": true", ", "+name+": false") }
	args := fmt.Sprintf("batch_first: true, dropout: %s", g.pick("0.0", "0.1"))
	switch g.r.IntN(3) {
	case 0:
		b.emit("{MultiheadAttention: {num_heads: %d, %s, need_weights: %s%s%s}, inputs: [%s, %s, %s], pick: 0}", heads, args, g.pick("true", "false", "false"),
			pick("attn_mask", causal), pick("key_padding_mask", padding), x, x, x)
	case 1:
		mask := pick("src_mask", causal)
		if mask != "" {
			mask += causality("is_causal")
		}
		b.emit("{TransformerEncoderLayer: {nhead: %d, dim_feedforward: %d, %s, norm_first: %s%s%s}, inputs: %s}", heads, g.size(8, 60), args, g.pick("true", "false"),
			mask, pick("src_key_padding_mask", padding), x)
	case 2:
		memory := x
		if p, ok := b.partner(); ok {
			memory = p.name
		}
		mask := pick("tgt_mask", causal)
		if mask != "" { // without a word PyTorch looks at the mask, which a virtual GPU has not computed
			mask += ", tgt_is_causal: " + g.pick("true", "false")
		}
		b.emit("{TransformerDecoder: {nhead: %d, num_layers: 1, dim_feedforward: %d, %s%s%s%s}, inputs: [%s, %s]}", heads, g.size(8, 60), args,
			mask, pick("tgt_key_padding_mask", padding), pick("memory_key_padding_mask", padding), x, memory)
	}
	b.result("", s, false)
	return true
}
