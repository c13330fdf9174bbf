package main

import "fmt"

// more writes one of the rarer operators, or reports that none suits the
// current value.
func (b *body) more() bool {
	g, s := b.g, b.cur.shape
	if numel(s) > 1<<19 {
		return false
	}
	if g.chance(0.4) {
		switch {
		case len(s) <= 3 && b.module && g.chance(0.2):
			return b.bilinear()
		case len(s) == 2 && b.module:
			return b.cell()
		case len(s) == 3:
			return b.moreSequence()
		case len(s) == 4:
			return b.moreImage()
		}
	}
	if len(s) == 3 && g.chance(0.15) {
		return b.masks()
	}
	switch g.r.IntN(3) {
	case 0:
		return b.reduction()
	case 1:
		return b.selection()
	}
	return b.blend()
}

// with returns s with another size of dimension d.
func with(s []int64, d int, n int64) []int64 {
	t := append([]int64(nil), s...)
	t[d] = n
	return t
}

// reduction writes a reduction along a dimension other than the batch, and
// brings the result back to the shape by broadcasting.
func (b *body) reduction() bool {
	g, s, x := b.g, b.cur.shape, b.cur.name
	d := 1 + g.r.IntN(len(s)-1)
	if s[d] < 2 {
		return false
	}
	if g.chance(0.25) { // over everything, back by broadcasting
		r := g.pick("norm", "var", "std", "max", "min", "norm: {p: 1}", "mean")
		if r == "norm" || r == "var" || r == "std" || r == "max" || r == "min" || r == "mean" {
			r += ": "
		}
		b.emit("{%s: [%s, {%s, inputs: %s}]}", g.pick("mul", "add", "sub", "div"), x, r, x)
		b.result("", s, false)
		return true
	}
	r := g.pick("var", "std", "norm", "amax", "amin", "logsumexp", "mean", "sum")
	extra := ""
	if r == "norm" && g.chance(0.3) {
		extra = ", p: 1"
	}
	switch {
	case g.chance(0.6):
		b.emit("{%s: [%s, {%s: {dim: %d, keepdim: true%s}, inputs: %s}]}", g.pick("mul", "sub", "div"), x, r, d, extra, x)
	case g.chance(0.5):
		b.emit("{%s: {dim: %d%s}, inputs: [{%s: , inputs: %s}]}", r, d, extra, g.pick("relu", "tanh", "exp"), x)
		b.emit("{unsqueeze: %d, inputs: x}", d)
		b.result("", with(s, d, 1), true)
		return true
	default:
		b.emit("{normalize: {dim: %d}, inputs: %s}", d, x)
	}
	b.result("", s, false)
	return true
}

// selection writes an operator that picks or moves elements.
func (b *body) selection() bool {
	g, s, x := b.g, b.cur.shape, b.cur.name
	d := 1 + g.r.IntN(len(s)-1)
	n := s[d]
	k := 1 + g.r.Int64N(n)
	switch g.r.IntN(12) {
	case 0:
		b.emit("{%s: {dim: %d, keepdim: true}, inputs: %s, pick: 0}", g.pick("max", "min"), d, x)
		b.result("", with(s, d, 1), false)
	case 1:
		if n > 4096 {
			return false
		}
		b.emit("{topk: {k: %d, dim: %d}, inputs: %s, pick: 0}", k, d, x)
		b.result("", with(s, d, k), false)
	case 2:
		if n > 4096 {
			return false
		}
		b.emit("{sort: {dim: %d}, inputs: %s, pick: 0}", d, x)
		b.result("", s, false)
	case 3:
		b.emit("{cumsum: %d, inputs: %s}", d, x)
		b.result("", s, false)
	case 4:
		b.emit("{flip: [%d], inputs: %s}", d, x)
		b.result("", s, false)
	case 5:
		b.emit("{roll: {shifts: [%d, 1], dims: [%d, 1]}, inputs: %s}", k, d, x)
		b.result("", s, false)
	case 6:
		if numel(s) > 1<<17 {
			return false
		}
		b.emit("{repeat_interleave: [2, %d], inputs: %s}", d, x)
		b.result("", with(s, d, 2*n), false)
	case 7:
		if numel(s) > 1<<16 {
			return false
		}
		reps := make([]int64, len(s))
		for i := range reps {
			reps[i] = 1
		}
		reps[d] = 3
		b.emit("{tile: %s, inputs: %s}", list(reps), x)
		b.result("", with(s, d, 3*n), false)
	case 8:
		b.emit("{index_select: {dim: %d, index: {arange: {end: %d}}}, inputs: %s}", d, k, x)
		b.result("", with(s, d, k), false)
	case 9:
		b.emit("{index: {self: %s, index: {arange: {end: %d}}, dim: %d}}", x, k, d)
		b.result("", with(s, d, k), false)
	case 10:
		if n > 4096 {
			return false
		}
		b.emit("{gather: {dim: %d, index: {argsort: {dim: %d}, inputs: %s}}, inputs: %s}", d, d, x, x)
		b.result("", s, false)
	case 11:
		if n%2 != 0 {
			return false
		}
		b.emit("{glu: {dim: %d}, inputs: %s}", d, x)
		b.result("", with(s, d, n/2), false)
	}
	return true
}

// blend writes a pointwise operator with a mask, bounds or another value.
func (b *body) blend() bool {
	g, s, x := b.g, b.cur.shape, b.cur.name
	mask := fmt.Sprintf("{%s: 0.1, inputs: %s}", g.pick("gt", "le"), x)
	other := ""
	if p, ok := b.partner(); ok {
		other = p.name
	}
	switch g.r.IntN(9) {
	case 0:
		b.emit("{where: {condition: %s, input: %s, other: 0.5}}", mask, x)
	case 1:
		if other == "" {
			return false
		}
		b.emit("{where: {condition: %s, input: %s, other: %s}}", mask, x, other)
	case 2:
		b.emit("{masked_fill: {mask: %s, value: 0.0}, inputs: %s}", mask, x)
	case 3:
		b.emit("{clamp: {%s}, inputs: %s}", g.pick("min: 0.0", "max: 1.0", "min: -1.0, max: 1.0"), x)
	case 4:
		if other == "" {
			return false
		}
		b.emit("{%s: [%s, %s]}", g.pick("maximum", "minimum"), x, other)
	case 5:
		b.emit("{%s: , inputs: %s}", g.pick("square", "reciprocal", "relu6", "hardtanh", "sqrt", "log", "rsqrt"), x)
	case 6:
		b.emit("{where: {condition: {logical_and: [%s, {lt: 1.0, inputs: %s}]}, input: 0.0, other: %s}}", mask, x, x)
	case 7:
		if !b.module {
			return false
		}
		b.emit("{%s, inputs: %s}", g.pick("PReLU: ", "RMSNorm: ", fmt.Sprintf("PReLU: %d", s[1])), x)
	case 8:
		if b.cur.view {
			return false
		}
		b.emit("{%s: , inputs: [{mul: [%s, 2.0]}], inplace: true}", g.pick("sigmoid", "tanh", "exp"), x)
	}
	b.result("", s, false)
	return true
}

// cell writes one or two steps of a recurrent cell.
func (b *body) cell() bool {
	g, s, x := b.g, b.cur.shape, b.cur.name
	h := g.size(8, 90)
	bias := g.pick("true", "false")
	if g.chance(0.5) {
		kind := g.pick("GRUCell: {", "GRUCell: {", "RNNCell: {nonlinearity: relu, ", "RNNCell: {")
		b.emit("{%shidden_size: %d, bias: %s}, inputs: %s}", kind, h, bias, x)
		b.result("", []int64{s[0], h}, false)
		return true
	}
	p, q := b.fresh(), b.fresh()
	b.emit("{LSTMCell: {hidden_size: %d, bias: %s}, inputs: %s, name: [%s, %s]}", h, bias, x, p, q)
	b.emit("{LSTMCell: {hidden_size: %d}, inputs: [%s, [%s, %s]], pick: %d}", h, p, p, q, g.r.IntN(2))
	b.result("", []int64{s[0], h}, false)
	return true
}

// moreSequence writes an operator on (batch, length, width).
func (b *body) moreSequence() bool {
	g, s, x := b.g, b.cur.shape, b.cur.name
	switch g.r.IntN(9) {
	case 0:
		b.emit("{interpolate: {size: %d, mode: %s}, inputs: %s}", s[2]+3, g.pick("nearest", "linear"), x)
		b.result("", with(s, 2, s[2]+3), false)
	case 1:
		if !b.module || s[2] < 4 {
			return false
		}
		b.emit("{%s: 2, inputs: %s}", g.pick("MaxPool1d", "AvgPool1d"), x)
		b.result("", with(s, 2, s[2]/2), true)
	case 2:
		if !b.module {
			return false
		}
		k := g.pick("AdaptiveAvgPool1d", "AdaptiveMaxPool1d")
		b.emit("{%s: %d, inputs: %s}", k, 1+s[2]/3, x)
		b.result("", with(s, 2, 1+s[2]/3), true)
	case 3:
		if !b.module || s[2] < 2 {
			return false
		}
		b.emit("{InstanceNorm1d: {affine: %s, track_running_stats: %s}, inputs: %s}", g.pick("true", "false"), g.pick("true", "false"), x)
		b.result("", s, true)
	case 4:
		if !b.module {
			return false
		}
		b.emit("{Dropout1d: 0.3, inputs: %s}", x)
		b.result("", s, false)
	case 5:
		b.emit("{einsum: {equation: \"bij,bkj->bik\", operands: [%s, %s]}}", x, x)
		b.result("", []int64{s[0], s[1], s[1]}, true)
	case 6:
		b.emit("{einsum: {equation: \"bij,bik->b%s\", operands: [%s, {relu: , inputs: %s}]}}", g.pick("jk", "kj"), x, x)
		b.result("", []int64{s[0], s[2], s[2]}, true)
	case 7:
		if !b.module {
			return false
		}
		heads := int64(1 + g.r.IntN(3))
		d := g.multiple(heads*4, 16, 120)
		b.step(fmt.Sprintf("Linear: %d", d), []int64{s[0], s[1], d}, "", true)
		args := fmt.Sprintf("nhead: %d, dim_feedforward: %d, dropout: %s, batch_first: %s, norm_first: %s, bias: %s, activation: %s", heads, g.size(20, 200),
			g.pick("0.0", "0.1"), g.pick("true", "false"), g.pick("true", "false"), g.pick("true", "true", "false"), g.pick("gelu", "relu"))
		x, s = b.cur.name, b.cur.shape
		switch g.r.IntN(4) {
		case 0:
			b.emit("{TransformerEncoder: {num_layers: 2, norm: %s, %s}, inputs: %s}", g.pick("true", "false"), args, x)
		case 1:
			b.emit("{TransformerDecoder: {num_layers: 2, norm: %s, %s}, inputs: [%s, %s]}", g.pick("true", "false"), args, x, x)
		case 2:
			b.emit("{Transformer: {num_encoder_layers: 1, num_decoder_layers: 2, %s}, inputs: [%s, %s]}", args, x, x)
		case 3:
			b.emit("{TransformerDecoderLayer: {%s}, inputs: [%s, {tanh: , inputs: %s}]}", args, x, x)
		}
		b.result("", s, false)
	case 8:
		k := s[1] * s[2]
		if k > 4000 {
			return false
		}
		b.emit("{einsum: {equation: \"bij,bij->b%s\", operands: [%s, {tanh: , inputs: %s}]}}", g.pick("ij", "ji"), x, x)
		return b.transposedResult(s)
	}
	return true
}

// transposedResult notes the shape of an einsum that may have swapped the last
// dimensions.
func (b *body) transposedResult(s []int64) bool {
	last := b.lines[len(b.lines)-1]
	for i := range last {
		if i+5 < len(last) && last[i:i+5] == "->bji" {
			b.result("", []int64{s[0], s[2], s[1]}, true)
			return true
		}
	}
	b.result("", s, true)
	return true
}

// moreImage writes an operator on (batch, channels, height, width).
func (b *body) moreImage() bool {
	g, s, x := b.g, b.cur.shape, b.cur.name
	switch g.r.IntN(9) {
	case 0, 1:
		h, w := s[2]+2, s[3]+1
		mode := g.pick("nearest", "bilinear", "bicubic")
		b.emit("{interpolate: {size: [%d, %d], mode: %s}, inputs: %s}", h, w, mode, x)
		b.result("", []int64{s[0], s[1], h, w}, false)
	case 2:
		if s[1]%4 != 0 {
			if s[2]%2 != 0 || s[3]%2 != 0 {
				return false
			}
			b.emit("{pixel_unshuffle: 2, inputs: %s}", x)
			b.result("", []int64{s[0], s[1] * 4, s[2] / 2, s[3] / 2}, false)
			return true
		}
		b.emit("{pixel_shuffle: 2, inputs: %s}", x)
		b.result("", []int64{s[0], s[1] / 4, s[2] * 2, s[3] * 2}, false)
	case 3:
		if !b.module || s[2]*s[3] < 2 {
			return false
		}
		b.emit("{InstanceNorm2d: {affine: %s, track_running_stats: %s}, inputs: %s}", g.pick("true", "false"), g.pick("true", "false"), x)
		b.result("", s, true)
	case 4:
		if !b.module {
			return false
		}
		b.emit("{Dropout2d: 0.3, inputs: %s}", x)
		b.result("", s, false)
	case 5:
		b.emit("{local_response_norm: %d, inputs: [{contiguous: , inputs: %s}]}", 2+g.r.IntN(4), x)
		b.result("", s, false)
	case 6:
		if !b.module {
			return false
		}
		b.emit("{AdaptiveMaxPool2d: {output_size: [%d, %d]}, inputs: %s}", 1+s[2]/2, 1+s[3]/3, x)
		b.result("", []int64{s[0], s[1], 1 + s[2]/2, 1 + s[3]/3}, false)
	case 7:
		b.emit("{einsum: {equation: \"bchw,bdhw->b%s\", operands: [%s, {relu: , inputs: %s}]}}", g.pick("cd", "dc"), x, x)
		b.result("", []int64{s[0], s[1], s[1]}, true)
	case 8:
		if !b.module || s[1] < 2 || s[2] < 2 || s[3] < 2 {
			return false
		}
		kind := g.pick("MaxPool3d: 2", "AvgPool3d: 2", "AdaptiveAvgPool3d: 1", "AdaptiveAvgPool3d: 2", "AdaptiveMaxPool3d: 2")
		out := []int64{s[0], s[1] / 2, s[2] / 2, s[3] / 2}
		b.emit("{%s, inputs: %s}", kind, x)
		if kind[1] == 'd' {
			n := int64(2)
			if kind[len(kind)-1] == '1' {
				n = 1
			}
			out = []int64{s[0], n, n, n}
		}
		b.result("", out, false)
	}
	return true
}
