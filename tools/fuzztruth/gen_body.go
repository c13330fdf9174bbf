package main

import (
	"fmt"
	"strings"
)

// vector works on (batch, features).
func (b *body) vector() {
	g := b.g
	s := b.cur.shape
	switch g.r.IntN(10) {
	case 0, 1, 2:
		if b.module {
			n := g.size(9, 700)
			bias := ""
			if g.chance(0.3) {
				bias = ", bias: false"
			}
			b.step(fmt.Sprintf("Linear: {out_features: %d%s}", n, bias), []int64{s[0], n}, "", false)
			return
		}
		b.generic()
	case 3:
		if b.module {
			b.step(g.pick("LayerNorm", "BatchNorm1d", "LayerNorm: {bias: false}", "SyncBatchNorm"), s, "", false)
			return
		}
		b.generic()
	case 4: // cut and join again
		k := s[1] / 2
		if k < 2 {
			b.generic()
			return
		}
		p, q := b.fresh(), b.fresh()
		b.emit("{split_with_sizes: {split_sizes: [%d, %d], dim: 1}, inputs: %s, name: [%s, %s]}", k, s[1]-k, b.cur.name, p, q)
		b.emit("{cat: {tensors: [%s, %s, %s], dim: 1}}", q, p, g.pick(p, q))
		third := k
		if strings.Contains(b.lines[len(b.lines)-1], ", "+q+"]") {
			third = s[1] - k
		}
		b.named = append(b.named, value{p, []int64{s[0], k}, true}, value{q, []int64{s[0], s[1] - k}, true})
		b.result("", []int64{s[0], s[1] + third}, false)
	case 5: // see it as a sequence for a while
		b.step("unsqueeze: 1", []int64{s[0], 1, s[1]}, "", true)
	case 6:
		if numel(s) < 1<<18 && g.chance(0.5) {
			b.step("transpose: [0, 1]", []int64{s[1], s[0]}, "", true)
			if g.chance(0.5) {
				b.step("contiguous", b.cur.shape, "", false)
			}
			b.step("transpose: [0, 1]", s, "", true)
			return
		}
		b.generic()
	default:
		b.generic()
	}
}

// sequence works on (batch, length, width).
func (b *body) sequence() {
	g := b.g
	s := b.cur.shape
	switch g.r.IntN(14) {
	case 0, 1:
		if b.module {
			n := g.size(8, 260)
			bias := ""
			if g.chance(0.3) {
				bias = ", bias: false"
			}
			b.step(fmt.Sprintf("Linear: {out_features: %d%s}", n, bias), []int64{s[0], s[1], n}, "", bias == "")
			return
		}
		b.generic()
	case 2, 3:
		if b.module {
			b.step("LayerNorm", s, "", false)
			return
		}
		b.generic()
	case 4, 5:
		if b.module {
			heads := int64(1 + g.r.IntN(4))
			d := g.multiple(heads*8, 16, 200)
			b.step(fmt.Sprintf("Linear: %d", d), []int64{s[0], s[1], d}, "", true)
			b.attention(heads)
			return
		}
		b.generic()
	case 6:
		if b.module {
			heads := int64(2 * (1 + g.r.IntN(3)))
			d := g.multiple(heads*4, 16, 160)
			b.step(fmt.Sprintf("Linear: %d", d), []int64{s[0], s[1], d}, "", true)
			s = b.cur.shape
			if g.chance(0.5) {
				drop := g.pick("0.0", "0.1")
				need := g.pick("true", "false")
				b.emit("{MultiheadAttention: {num_heads: %d, dropout: %s, batch_first: %s, need_weights: %s}, inputs: [%s, %s, %s], pick: 0}",
					heads, drop, g.pick("true", "false"), need, b.cur.name, b.cur.name, b.cur.name)
				b.result("", s, true)
				return
			}
			b.step(fmt.Sprintf("TransformerEncoderLayer: {nhead: %d, dim_feedforward: %d, dropout: %s, activation: %s, batch_first: %s, norm_first: %s}",
				heads, g.size(20, 300), g.pick("0.0", "0.1"), g.pick("gelu", "relu"), g.pick("true", "true", "false"), g.pick("true", "false")), s, "", false)
			return
		}
		b.generic()
	case 7:
		b.step("transpose: [1, 2]", []int64{s[0], s[2], s[1]}, "", true)
	case 8:
		k := g.r.Int64N(s[1])
		b.step(fmt.Sprintf("getitem: \":, %d\"", k), []int64{s[0], s[2]}, "", true)
	case 9:
		b.step("mean: 1", []int64{s[0], s[2]}, "", false)
	case 10:
		b.step(fmt.Sprintf("reshape: [-1, %d, %d]", s[2], s[1]), []int64{s[0], s[2], s[1]}, "", true)
	case 11:
		if b.module && s[1]*s[2] < 9000 {
			b.step("Flatten", []int64{s[0], s[1] * s[2]}, "", true)
			return
		}
		b.generic()
	default:
		b.generic()
	}
}

// attention splits the current value into heads and attends to itself.
func (b *body) attention(heads int64) {
	g := b.g
	s := b.cur.shape
	if heads%2 == 0 && g.chance(0.3) {
		b.grouped(heads, 2)
		return
	}
	d := s[2] / heads
	q := b.cur.name
	if b.g.chance(0.5) {
		b.emit("{name: %s}", b.keep())
	}
	view := fmt.Sprintf("{transpose: [1, 2], inputs: [{view: [%d, %d, %d, %d], inputs: %s}]}", s[0], s[1], heads, d, q)
	args := fmt.Sprintf("{dropout_p: %s, is_causal: %s}", g.pick("0.0", "0.2"), g.pick("true", "false"))
	b.emit("{scaled_dot_product_attention: %s, inputs: [%s, %s, %s]}", args, view, view, view)
	b.result("", []int64{s[0], heads, s[1], d}, true)
	b.emit("{transpose: [1, 2], inputs: x}")
	if g.chance(0.7) {
		b.emit("contiguous")
		b.emit("view: %s", list(s))
	} else {
		b.emit("reshape: %s", list(s))
	}
	b.result("", s, true)
}

// image works on (batch, channels, height, width).
func (b *body) image() {
	g := b.g
	s := b.cur.shape
	switch g.r.IntN(12) {
	case 0, 1, 2:
		if b.module && g.chance(0.5) {
			b.conv()
			return
		}
		if b.module {
			c := g.size(3, 48)
			k := int64(1 + 2*g.r.IntN(2))
			stride := int64(1 + g.r.IntN(2))
			pad := k / 2
			o := func(n int64) int64 { return (n+2*pad-k)/stride + 1 }
			bias := g.pick("true", "false")
			b.step(fmt.Sprintf("Conv2d: {out_channels: %d, kernel_size: %d, stride: %d, padding: %d, bias: %s}", c, k, stride, pad, bias),
				[]int64{s[0], c, o(s[2]), o(s[3])}, "", false)
			return
		}
		b.generic()
	case 3, 4:
		if b.module && numel(s)/s[1] > 1 {
			b.step(g.pick("BatchNorm2d", "BatchNorm2d", "SyncBatchNorm"), s, "", false)
			return
		}
		b.generic()
	case 5:
		if b.module {
			for _, k := range []int64{4, 3, 2} {
				if s[1]%k == 0 {
					b.step(fmt.Sprintf("GroupNorm: %d", k), s, "", false)
					return
				}
			}
			b.step("GroupNorm: 1", s, "", false)
			return
		}
		b.generic()
	case 6:
		if b.module && s[2] > 4 && s[3] > 4 {
			if g.chance(0.7) {
				b.step("MaxPool2d: 2", []int64{s[0], s[1], s[2] / 2, s[3] / 2}, "", false)
			} else {
				b.step("AvgPool2d: 2", []int64{s[0], s[1], s[2] / 2, s[3] / 2}, "", false)
			}
			return
		}
		b.generic()
	case 7:
		if s[1] >= 2 {
			p, q := b.fresh(), b.fresh()
			b.emit("{chunk: {chunks: 2, dim: 1}, inputs: %s, name: [%s, %s]}", b.cur.name, p, q)
			h := (s[1] + 1) / 2
			b.emit("{cat: {tensors: [%s, %s], dim: 1}}", q, p)
			b.named = append(b.named, value{p, []int64{s[0], h, s[2], s[3]}, true}, value{q, []int64{s[0], s[1] - h, s[2], s[3]}, true})
			b.result("", s, false)
			return
		}
		b.generic()
	case 8:
		if b.module && g.chance(0.3) {
			b.step("AdaptiveAvgPool2d: 1", []int64{s[0], s[1], 1, 1}, "", false)
			b.step("Flatten", []int64{s[0], s[1]}, "", true)
			return
		}
		b.generic()
	case 9:
		if g.chance(0.3) {
			b.step("flatten: 2", []int64{s[0], s[1], s[2] * s[3]}, "", true)
			b.step("transpose: [1, 2]", []int64{s[0], s[2] * s[3], s[1]}, "", true)
			return
		}
		b.generic()
	default:
		b.generic()
	}
}
