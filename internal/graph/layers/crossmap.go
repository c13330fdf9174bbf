package layers

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
)

// CrossMapLRN2d is a torch.autograd.Function (torch/nn/modules/_functions.py), which
// saves its input and its result and keeps the scale as an attribute.
var CrossMapLRN2d = define(module.Layer{
	Sig: "nn.CrossMapLRN2d(size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0)",
	Build: func(b *module.Builder) {
		if b.Int("size") < 2 {
			b.Fail("size", "size must be at least 2, not %d; the backward pass of 1 fails in PyTorch", b.Int("size"))
		}
		a := &aten.ResponseNormArgs{Size: b.Int("size"), Alpha: b.Float("alpha"), Beta: b.Float("beta"), K: b.Float("k")}
		b.Finish(b.Apply("CrossMapLRN2d", []string{"input"}, []value.Value{b.In(0)}, func(f *module.Builder, in []value.Value) module.Outcome {
			parts := f.LetAll([]string{"output", "scale"}, f.Call(aten.CrossMapNorm, a, in[0]))
			return module.Outcome{Returned: parts[:1], Saved: []value.Value{in[0], parts[0]}, Kept: parts[1:]}
		}, func(f *module.Builder, grads, saved []value.Value) []value.Value {
			return []value.Value{f.Do(aten.CrossMapNormBackward, a, grads[0], saved[0], saved[1], saved[2])}
		}))
	},
})
