package op

// spatial resolves an argument of a function to n numbers, one number standing
// for all.
func (c *Call) spatial(name string, v []int64, n int, least int64) []int64 {
	if len(v) == 1 {
		for len(v) < n {
			v = append(v[:len(v):len(v)], v[0])
		}
	}
	if len(v) != n {
		c.Fail("%s must be one integer or %d, not %d of them", Arg(name), n, len(v))
	}
	for _, x := range v {
		if x < least {
			c.Fail("%s must be at least %d, not %d", Arg(name), least, x)
		}
	}
	return v
}

// PoolOptions are the arguments of F.max_pool2d and its like, as they are
// written.
type PoolOptions struct {
	Kernel   []int64 `arg:"kernel_size"`
	Stride   []int64 `arg:"stride"`
	Padding  []int64 `arg:"padding"`
	Dilation []int64 `arg:"dilation"`
	Ceil     bool    `arg:"ceil_mode"`
	Indices  bool    `arg:"return_indices"`
	Norm     float64 `arg:"norm_type"`
	Include  *bool   `arg:"count_include_pad"`
	Divisor  int64   `arg:"divisor_override"`
}

// pool resolves the options for n dimensions.
func (c *Call) pool(o *PoolOptions, n int) *PoolArgs {
	a := &PoolArgs{Kernel: c.spatial("kernel_size", o.Kernel, n, 1), CeilMode: o.Ceil, ExcludePadding: o.Include != nil && !*o.Include, Divisor: o.Divisor}
	a.Stride, a.Padding, a.Dilation = a.Kernel, make([]int64, n), []int64{1, 1, 1}[:n]
	if len(o.Stride) > 0 {
		a.Stride = c.spatial("stride", o.Stride, n, 1)
	}
	if len(o.Padding) > 0 {
		a.Padding = c.spatial("padding", o.Padding, n, 0)
	}
	if len(o.Dilation) > 0 {
		a.Dilation = c.spatial("dilation", o.Dilation, n, 1)
	}
	for i := range a.Padding {
		if a.Padding[i] > a.Kernel[i]/2 {
			c.Fail("%s %d is more than half of kernel size %d", Arg("padding"), a.Padding[i], a.Kernel[i])
		}
	}
	return a
}
