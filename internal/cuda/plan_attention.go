package cuda

import (
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

var attentionPlans = map[*kernel.Kernel]gpuPlanner{kernel.Attention: attention, kernel.AttentionGrad: attentionGrad, kernel.AttentionMaskGrad: attentionMaskGrad}

// headSize is the largest size of heads that a function is for, with the rows that
// a block has: forward and backward.
type headSize struct{ size, rows, gradRows int64 }

// headSizes are those of float32, and those of tensor cores.
var (
	headSizes       = []headSize{{64, 32, 32}, {128, 32, 16}, {256, 16, 8}, {512, 8, 4}}
	tensorHeadSizes = []headSize{{64, 64, 32}, {128, 32, 32}}
)

// heads are the parameters HEADS, the size of the functions, and the end of their
// names.
func (g gpu) heads(c *kernel.Call) (p args, size headSize, suffix string, err error) {
	q, k, v := operand(c, "q"), operand(c, "k"), operand(c, "v")
	if shared := max(1, k.Size.At(1)); q.Size.At(1)%shared != 0 || v.Size.At(1) != k.Size.At(1) {
		return nil, headSize{}, "", unsupported(c, fmt.Sprintf("%d heads of queries for %d of keys and %d of values", q.Size.At(1), k.Size.At(1), v.Size.At(1)))
	}
	e, ev, drop := q.Size.At(3), v.Size.At(3), float(c, "p")
	p = args{}.ints(q.Size.At(1), q.Size.At(1)/max(1, k.Size.At(1)), q.Size.At(2), k.Size.At(2), e, ev).floats(float(c, "scale"), 1/(1-drop)).
		ints(number(c, "causal"), number(c, "seed"), threshold(drop))
	fits := func(h headSize) bool { return max(e, ev) <= h.size }
	if u := g.unit(q, k); u.tensor && v.DType == q.DType && (c.Kernel == kernel.Attention || operand(c, "g").DType == q.DType) {
		if i := slices.IndexFunc(tensorHeadSizes, fits); i >= 0 {
			return p, tensorHeadSizes[i], u.suffix, nil
		}
	}
	i := slices.IndexFunc(headSizes, fits)
	if i < 0 {
		return nil, headSize{}, "", unsupported(c, fmt.Sprintf("heads of size %d; at most %d are computed there", max(e, ev), headSizes[len(headSizes)-1].size))
	}
	return p, headSizes[i], "", nil
}

func attention(c *kernel.Call, g gpu) ([]launch, error) {
	p, h, suffix, err := g.heads(c)
	if err != nil {
		return nil, err
	}
	q := operand(c, "q")
	for _, name := range []string{"y", "lse", "q", "k", "v", "mask"} {
		p = p.whole(operand(c, name))
	}
	return []launch{{fmt.Sprintf("attention_%d%s", h.size, suffix), q.Size.At(0) * q.Size.At(1) * tensor.DivUp(q.Size.At(2), h.rows), 1, p}}, nil
}

func attentionGrad(c *kernel.Call, g gpu) ([]launch, error) {
	p, h, suffix, err := g.heads(c)
	if err != nil {
		return nil, err
	}
	p = p[:len(p):len(p)] // two lists go on from it
	with := func(names ...string) args {
		p := p
		for _, name := range append(names, "g", "y", "lse", "q", "k", "v", "mask") {
			p = p.whole(operand(c, name))
		}
		return p
	}
	q, k := operand(c, "q"), operand(c, "k")
	batch := q.Size.At(0)
	return []launch{
		{fmt.Sprintf("attention_queries_%d%s", h.size, suffix), batch * q.Size.At(1) * tensor.DivUp(q.Size.At(2), h.gradRows), 1, with("gq")},
		{fmt.Sprintf("attention_keys_%d%s", h.size, suffix), batch * k.Size.At(1) * tensor.DivUp(k.Size.At(2), h.gradRows), 1, with("gk", "gv")},
	}, nil
}

// attentionMaskGrad has a block for each query; heads may have as many features as in the
// other functions.
func attentionMaskGrad(c *kernel.Call, g gpu) ([]launch, error) {
	p, _, _, err := g.heads(c)
	if err != nil {
		return nil, err
	}
	for i := range c.T {
		p = p.whole(&c.T[i])
	}
	q := operand(c, "q")
	return []launch{{"attention_mask_grad", q.Size.At(0) * q.Size.At(1) * q.Size.At(2), 1, p}}, nil
}
