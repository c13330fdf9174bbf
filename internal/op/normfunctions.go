package op

// NormFunctionArgs are the arguments of F.batch_norm and F.instance_norm.
type NormFunctionArgs struct {
	Training bool    `arg:"training"`
	Use      bool    `arg:"use_input_stats"`
	Momentum float64 `arg:"momentum"`
	Eps      float64 `arg:"eps"`
}

// The norms of torch.nn.functional with statistics of their own.
var (
	_ = define(Op{
		Name: "batch_norm.any", Args: &NormFunctionArgs{}, Composite: true,
		Sig: "F.batch_norm(input, running_mean: tensor?, running_var: tensor?, weight: tensor? = None, bias: tensor? = None, training: bool = False, " +
			"momentum: float = 0.1, eps: float = 1e-05)",
		Run: func(c *Call) {
			a := c.Args.(*NormFunctionArgs)
			c.normFunction(BatchNorm, &BatchNormArgs{Batch: a.Training, Running: !a.Training, Momentum: a.Momentum, Eps: a.Eps}, !a.Training)
		},
		Source: "torch/nn/functional.py: batch_norm",
	})
	_ = define(Op{
		Name: "instance_norm.any", Args: &NormFunctionArgs{}, Composite: true,
		Sig: "F.instance_norm(input, running_mean: tensor? = None, running_var: tensor? = None, weight: tensor? = None, bias: tensor? = None, " +
			"use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-05)",
		Run: func(c *Call) {
			a := c.Args.(*NormFunctionArgs)
			c.normFunction(InstanceNorm, &InstanceNormArgs{Batch: a.Use, Running: !a.Use, Momentum: a.Momentum, Eps: a.Eps}, !a.Use)
		},
		Source: "torch/nn/functional.py: instance_norm",
	})
)

// normFunction calls a norm, whose weight and bias come before the statistics.
func (c *Call) normFunction(r *Op, args any, running bool) {
	x, mean, variance := c.In[0], c.Opt(1), c.Opt(2)
	if running && (mean == nil || variance == nil) {
		c.Fail("statistics that are not the input's need running_mean and running_var")
	}
	for i := 1; i < len(c.In); i++ {
		if t := c.In[i]; t != nil && (x.Rank() < 2 || t.Rank() != 1 || t.Dim(0) != x.Dim(1)) {
			c.Fail("statistics, weight and bias have one number for each channel of shape %v, not shape %v", x.Size, t.Size)
		}
	}
	c.Return(c.Do1(r, args, x, c.Opt(3), c.Opt(4), mean, variance))
}
