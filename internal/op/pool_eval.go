package op

import (
	"slices"

	"github.com/memplan/memplan/internal/kernel"
)

// windows are the sizes, steps and paddings of windows as kernels take them.
func (a *PoolArgs) windows() []int64 {
	return slices.Concat(spaces(1, a.Kernel), spaces(1, a.Stride), spaces(0, a.Padding))
}

// evalMaxPool is a pooling that takes the largest element of each window.
var evalMaxPool = &Eval{
	Forward: func(m Machine, c *Call) error {
		a := c.Args.(*PoolArgs)
		l := launch{m: m}
		l.volumes(len(a.Kernel), c.Out[0], c.Out[1], c.In[0])
		return l.run(kernel.MaxPool, append(a.windows(), spaces(1, a.Dilation)...))
	},
	Backward: func(m Machine, b *Back) error {
		a := b.Args.(*PoolArgs)
		l := launch{m: m}
		l.volumes(len(a.Kernel), b.Results[0], b.Grads[0], b.SavedOut(1))
		return l.run(kernel.MaxPoolGrad, append(a.windows(), spaces(1, a.Dilation)...))
	},
}

// averages are the numbers of average pooling.
func (a *PoolArgs) averages() []int64 { return append(a.windows(), flag(!a.ExcludePadding), a.Divisor) }

// evalAvgPool averages windows. What its kernel does not know is those that reach beyond
// the end of the input.
var evalAvgPool = &Eval{
	Forward: func(m Machine, c *Call) error {
		a := c.Args.(*PoolArgs)
		if a.CeilMode {
			return evalAveraged.Forward(m, c)
		}
		l := launch{m: m}
		l.volumes(len(a.Kernel), c.Out[0], c.In[0])
		return l.run(kernel.AvgPool, a.averages())
	},
	Backward: func(m Machine, b *Back) error {
		a := b.Args.(*PoolArgs)
		if a.CeilMode {
			return evalAveraged.Backward(m, b)
		}
		l := launch{m: m}
		l.volumes(len(a.Kernel), b.Results[0], b.Grads[0])
		return l.run(kernel.AvgPoolGrad, a.averages())
	},
}

// evalAdaptiveAvgPool averages windows that divide the input.
var evalAdaptiveAvgPool = &Eval{
	Forward: func(m Machine, c *Call) error {
		l := launch{m: m}
		l.volumes(len(c.Args.(*AdaptiveArgs).Size), c.Out[0], c.In[0])
		return l.run(kernel.AdaptiveAvgPool, nil)
	},
	Backward: func(m Machine, b *Back) error {
		l := launch{m: m}
		l.volumes(len(b.Args.(*AdaptiveArgs).Size), b.Results[0], b.Grads[0])
		return l.run(kernel.AdaptiveAvgPoolGrad, nil)
	},
}
