package main

import "fmt"

// conv writes a convolution of another kind than the plain one: transposed,
// grouped, depthwise or dilated, with padding by name, over uneven kernels.
func (b *body) conv() {
	g, s := b.g, b.cur.shape
	kernel := []int64{int64(1 + g.r.IntN(5)), int64(1 + g.r.IntN(5))}
	stride := []int64{int64(1 + g.r.IntN(2)), int64(1 + g.r.IntN(3))}
	dilation := []int64{int64(1 + g.r.IntN(2)), int64(1 + g.r.IntN(2))}
	if g.chance(0.5) { // the shapes that cuDNN takes as depthwise convolutions
		kernel[1], stride[1], dilation = kernel[0], stride[0], []int64{1, 1}
	}
	out, groups := g.size(3, 48), int64(1)
	for _, k := range []int64{s[1], 3, 2} {
		if s[1]%k == 0 && k > 1 && g.chance(0.4) {
			groups, out = k, k*int64(1+g.r.IntN(2))
			break
		}
	}
	size := []int64{s[0], out, s[2], s[3]}
	args := fmt.Sprintf("out_channels: %d, kernel_size: %s, dilation: %s, groups: %d, bias: %s", out, list(kernel), list(dilation), groups, g.pick("true", "false"))
	if g.chance(0.3) && s[2]*s[3] < 1500 {
		pad := int64(g.r.IntN(2))
		for i := range 2 {
			size[2+i] = (s[2+i]-1)*stride[i] - 2*pad + dilation[i]*(kernel[i]-1) + 1 + stride[i] - 1
			if size[2+i] < 1 {
				b.generic()
				return
			}
		}
		b.step(fmt.Sprintf("ConvTranspose2d: {%s, stride: %s, padding: %d, output_padding: %s}", args, list(stride), pad,
			list([]int64{stride[0] - 1, stride[1] - 1})), size, "", false)
		return
	}
	if g.chance(0.3) {
		b.step(fmt.Sprintf("Conv2d: {%s, padding: same}", args), size, "", false)
		return
	}
	for i := range 2 {
		reach := s[2+i] + 4 - dilation[i]*(kernel[i]-1) - 1
		if reach < 0 {
			b.generic()
			return
		}
		size[2+i] = reach/stride[i] + 1
	}
	b.step(fmt.Sprintf("Conv2d: {%s, stride: %s, padding: 2}", args, list(stride)), size, "", false)
}
