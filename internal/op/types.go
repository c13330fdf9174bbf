package op

import (
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// typeRules say which element types operators take, by the names of rows; in-place
// forms follow their operators. PyTorch refuses all others: there is no kernel, or
// no conversion between the operands.
var typeRules = []struct {
	rows  string
	check func(*Call)
}{
	{`adaptive_avg_pool adaptive_avg_pool3d adaptive_max_pool2d avg_pool avg_pool3d max_pool2d_with_indices max_pool3d
		celu elu frac gelu hardshrink hardsigmoid hardswish leaky_relu log_sigmoid mish rrelu selu silu softplus softshrink
		hypot lerp logaddexp alpha_dropout native_dropout mean _softmax _log_softmax native_layer_norm group_norm batch_norm
		binary_cross_entropy binary_cross_entropy_with_logits huber_loss l1_loss mse_loss smooth_l1_loss soft_margin_loss
		addmm mm bmm baddbmm mv im2col interpolate gumbel_softmax addcdiv dropout1d dropout2d dropout3d hinge_embedding_loss`, (*Call).floats},
	{`addmm mm bmm baddbmm mv dot linear convolution native_layer_norm group_norm prelu bilinear _cudnn_rnn`, (*Call).oneType},
	{`kl_div`, (*Call).allFloats},
	{`batch_norm`, (*Call).normTypes},
	{`scaled_dot_product_attention`, func(c *Call) { c.typesOf(c.In[:3]) }},
}

func init() {
	for _, rule := range typeRules {
		for _, name := range strings.Fields(rule.rows) {
			Row0(name).checked(rule.check)
			if r := table[name+"_"]; r != nil {
				r.checked(rule.check)
			}
		}
	}
}

// checked makes the row check its inputs first.
func (r *Row) checked(check func(*Call)) {
	run := r.Run
	r.Run = func(c *Call) {
		check(c)
		run(c)
	}
}

// floats wants at least one input of a floating type.
func (c *Call) floats() {
	for _, t := range c.In {
		if t != nil && t.DType.IsFloating() {
			return
		}
	}
	c.Fail("takes floating point tensors, not %v, PyTorch says", c.In[0].DType)
}

// allFloats wants inputs of floating types.
func (c *Call) allFloats() {
	for _, t := range c.In {
		if t != nil && !t.DType.IsFloating() {
			c.Fail("takes floating point tensors, not %v, PyTorch says", t.DType)
		}
	}
}

// oneType wants inputs of one type.
func (c *Call) oneType() { c.typesOf(c.In) }

// typesOf wants tensors of one type.
func (c *Call) typesOf(ts []*Tensor) {
	for _, t := range ts[1:] {
		if t != nil && t.DType != ts[0].DType {
			c.Fail("takes tensors of one type, not %v and %v, PyTorch says; convert one", ts[0].DType, t.DType)
		}
	}
}

// normTypes wants weights of the type of the input, or of float32 for the 16-bit
// types.
func (c *Call) normTypes() {
	x := c.In[0]
	for _, t := range c.In[1:] {
		if t != nil && t.DType != x.DType && !(x.DType.IsHalf() && t.DType == tensor.Float32) {
			c.Fail("takes weights and statistics of %v, or of float32 for 16-bit types, not %v, PyTorch says", x.DType, t.DType)
		}
	}
}
