package op

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// evalBoolMask is 0 where the mask is set, else -inf.
var evalBoolMask = &Eval{Forward: func(m Machine, c *Call) error {
	if err := m.Apply(kernel.Fill, c.Out[0], nil, math.Inf(-1)); err != nil {
		return err
	}
	return m.Apply(kernel.MaskedFill, c.Out[0], []*Tensor{c.Out[0], c.In[0]}, 0)
}}

// evalSafeSoftmax is a softmax that gives zeros for rows that are masked whole.
var evalSafeSoftmax = &Eval{
	Forward: func(m Machine, c *Call) error {
		return m.Aside(func(a Arrays) {
			x := a.Array(c.In[0])
			array.Lanes(x.Size, array.Dim(c.Args.(*SoftmaxArgs).Dim, len(x.Size)), func(_, at, step, n int) {
				for i, v := range array.SafeSoftmax(x.Row(at, step, n)) {
					x.V[at+i*step] = v
				}
			})
			a.Put(c.Out[0], x.V)
		})
	},
	Backward: evalSoftmax(kernel.Softmax, kernel.SoftmaxGrad).Backward,
}

// attentionArgs are the arguments of a fused attention, whose rows differ in what they
// allocate.
func attentionArgs(args any) *SDPAArgs {
	return args.(interface{ Attention() *SDPAArgs }).Attention()
}

// scale is what scores of queries of some width are multiplied by.
func (a *SDPAArgs) scale(q *Tensor) float64 {
	if a.Scale != nil {
		return *a.Scale
	}
	return 1 / math.Sqrt(float64(q.Dim(3)))
}

// logSumExp adds those of so many queries, as [B, H, L]: rows may be padded.
func (l *launch) logSumExp(t *Tensor, length int64) {
	if t == nil || t.Numel() == 0 {
		l.seen(nil)
		return
	}
	l.ts = append(l.ts, l.m.At(t, t.Narrow(2, 0, length, 1)))
}

// mask adds one that is broadcast to all scores; nil is absent.
func (l *launch) mask(t, q, k *Tensor) {
	v, err := broadcasted(l.m, t, q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2))
	if l.err == nil {
		l.err = err
	}
	l.ts = append(l.ts, v)
}

// evalAttention is a fused attention. The kernels know neither heads that share keys nor
// the gradient of a mask. The seed of the dropout is that of the forward pass: it is
// noted of the log-sum-exp, which both have.
var evalAttention = &Eval{
	Forward: func(m Machine, c *Call) error {
		q, k, lse := c.In[0], c.In[1], c.Out[1]
		if k.Dim(1) != q.Dim(1) {
			return attentionAside.Forward(m, c)
		}
		a, seed := attentionArgs(c.Args), int64(0)
		if a.DropoutP > 0 {
			seed = m.Draw()
			m.Note(lse, seed)
		}
		l := launch{m: m}
		l.add(c.Out[0])
		l.logSumExp(lse, q.Dim(2))
		l.add(c.In[:3]...)
		l.mask(c.Opt(3), q, k)
		return l.run(kernel.Attention, []int64{flag(a.IsCausal), seed}, a.scale(q), a.DropoutP)
	},
	Backward: func(m Machine, b *Back) error {
		q, k, lse, a := b.SavedIn(0), b.SavedIn(1), b.SavedOut(1), attentionArgs(b.Args)
		switch masked := m.Wanted(b, 3) != nil; {
		case k.Dim(1) != q.Dim(1), masked && a.DropoutP == 0:
			return attentionAside.Backward(m, b)
		case masked: // the kernel dropped out by numbers of its own
			return &Refusal{What: "the gradient of the mask of an attention with dropout"}
		}
		l := launch{m: m}
		l.add(b.Results[:3]...)
		l.add(b.Grads[0], b.SavedOut(0))
		l.logSumExp(lse, q.Dim(2))
		l.add(q, k, b.SavedIn(2))
		l.mask(b.SavedIn(3), q, k)
		return l.run(kernel.AttentionGrad, []int64{flag(a.IsCausal), noted[int64](m, lse)}, a.scale(q), a.DropoutP)
	},
}

// attentionOf are operands as arrays, whose dropout has a seed.
func attentionOf(a Arrays, args *SDPAArgs, in []*Tensor, seed int64) *array.Attention {
	q, k := in[0], in[1]
	t := &array.Attention{Q: a.Array(q), K: a.Array(k), V: a.Array(in[2]), Causal: args.IsCausal, Scale: args.scale(q)}
	t.Mask = a.Like(optional(in, 3), tensor.D(q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2)))
	if args.DropoutP > 0 {
		t.Dropped = func(i int) float64 { return droppedOut(uint64(seed), int64(i), args.DropoutP) }
	}
	return t
}

// droppedOut is what number i counts with after a dropout: 0 with probability p.
func droppedOut(seed uint64, i int64, p float64) float64 {
	if float64(kernel.Uniform(seed, i)) >= p {
		return 1 / (1 - p)
	}
	return 0
}

var attentionAside = &Eval{
	Forward: func(m Machine, c *Call) error {
		return m.Aside(func(a Arrays) {
			seed := m.Draw()
			m.Note(c.Out[1], seed)
			a.Put(c.Out[0], attentionOf(a, attentionArgs(c.Args), c.In, seed).Forward())
		})
	},
	Backward: func(m Machine, b *Back) error {
		return m.Aside(func(a Arrays) {
			t := attentionOf(a, attentionArgs(b.Args), b.SavedIns(), noted[int64](m, b.SavedOut(1)))
			gq, gk, gv, gm := t.Backward(a.Get(b.Grads[0]))
			for i, g := range [][]float64{gq, gk, gv} {
				a.Put(a.Wanted(b, i), g)
			}
			if mask := a.Wanted(b, 3); mask != nil {
				q := b.SavedIn(0)
				a.PutSummed(mask, gm, tensor.D(q.Dim(0), q.Dim(1), q.Dim(2), b.SavedIn(1).Dim(2)))
			}
		})
	},
}
