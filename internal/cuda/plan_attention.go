package cuda

import (
	"fmt"

	"github.com/memplan/memplan/internal/kernel"
)

var attentionPlans = map[*kernel.Kernel]planner{kernel.Attention: attention, kernel.AttentionGrad: attentionGrad}

// headSizes are those for which there are functions, with the rows that a block
// of each has: forward and backward.
var headSizes = []struct{ size, rows, gradRows int64 }{{64, 32, 32}, {128, 32, 16}, {256, 16, 8}, {512, 8, 4}}

// heads are the parameters HEADS, and the row of headSizes.
func heads(c *kernel.Call) (p args, size, rows, gradRows int64, err error) {
	q, k, v := operand(c, "q"), operand(c, "k"), operand(c, "v")
	e, ev, drop := q.Size.At(3), v.Size.At(3), float(c, "p")
	for _, h := range headSizes {
		if max(e, ev) <= h.size {
			p = args{}.ints(q.Size.At(1), q.Size.At(2), k.Size.At(2), e, ev).floats(float(c, "scale"), 1/(1-drop)).
				ints(number(c, "causal"), number(c, "seed"), threshold(drop))
			return p, h.size, h.rows, h.gradRows, nil
		}
	}
	return nil, 0, 0, 0, unsupported(c, fmt.Sprintf("heads of size %d; at most %d are computed there", max(e, ev), headSizes[len(headSizes)-1].size))
}

func attention(c *kernel.Call) ([]launch, error) {
	p, size, rows, _, err := heads(c)
	if err != nil {
		return nil, err
	}
	q := operand(c, "q")
	for _, name := range []string{"y", "lse", "q", "k", "v", "mask"} {
		p = p.whole(operand(c, name))
	}
	return []launch{{fmt.Sprintf("attention_%d", size), q.Size.At(0) * q.Size.At(1) * ceilDiv(q.Size.At(2), rows), 1, p}}, nil
}

func attentionGrad(c *kernel.Call) ([]launch, error) {
	p, size, _, rows, err := heads(c)
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
	all := q.Size.At(0) * q.Size.At(1)
	return []launch{
		{fmt.Sprintf("attention_queries_%d", size), all * ceilDiv(q.Size.At(2), rows), 1, with("gq")},
		{fmt.Sprintf("attention_keys_%d", size), all * ceilDiv(k.Size.At(2), rows), 1, with("gk", "gv")},
	}, nil
}
