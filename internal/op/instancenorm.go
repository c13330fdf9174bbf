package op

// InstanceNormArgs are the arguments of instance_norm.
type InstanceNormArgs struct {
	Batch, Running bool // statistics of the input, or running ones, in any mode
	Momentum, Eps  float64
}

// InstanceNorm is batch_norm with every sample's channels as channels of one
// sample. Inputs are those of batch_norm.
var InstanceNorm = define(Op{
	Name: "instance_norm", Args: &InstanceNormArgs{}, Composite: true, Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*InstanceNormArgs)
		if x.Rank() < 3 {
			c.Fail("instance_norm needs at least three dimensions, not shape %v", x.Size)
		}
		n, ch := x.Dim(0), x.Dim(1)
		shape := x.Size.Slice()
		shape[0], shape[1] = 1, n*ch
		in := make([]*Tensor, 5)
		for i := 1; i < 5; i++ {
			if t := c.Opt(i); t != nil {
				in[i] = c.Local(c.Do1(Repeat, &RepeatArgs{Repeats: []int64{n}}, t))
			}
		}
		row := c.Do1(Contiguous, nil, x)
		in[0] = c.Local(c.Do1(View, &ShapeArgs{Shape: shape}, row))
		c.Drop(row)
		out := c.Local(c.Do1(BatchNorm, &BatchNormArgs{Batch: a.Batch, Running: a.Running, Momentum: a.Momentum, Eps: a.Eps}, in...))
		for i := 3; i < 5; i++ {
			if in[i] == nil {
				continue
			}
			v := c.Do1(View, &ShapeArgs{Shape: []int64{n, ch}}, in[i])
			mean := c.Do1(Mean, &ReduceArgs{Dim: []int64{0}}, v)
			c.Drop(c.Do1(CopyInPlace, nil, c.In[i], mean))
			c.Drop(mean, v)
		}
		c.Return(c.Do1(View, &ShapeArgs{Shape: x.Size.Slice()}, out))
	},
	Source: "aten/src/ATen/native/Normalization.cpp: instance_norm",
})
