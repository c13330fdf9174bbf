package aten

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// SolveRight is torch.linalg.solve(a, b, left=False) of batches of square matrices, a
// contiguous.
var SolveRight = define(op.Op{
	Name: "linalg_solve.right", Composite: true, Run: func(c *op.Call) {
		outs := c.Do(SolveRightEx, nil, c.In...)
		c.Return(outs[0])
		c.Drop(outs[1], outs[2])
		c.Drop(c.NewShape(tensor.Bool)) // _linalg_check_errors: infos.any()
		c.Drop(outs[3])
	},
})

// SolveRightEx is what it calls, which keeps the factors of a: a is factorized in the layout
// of columns that it has as its transpose. cuBLAS factorizes several matrices at once, for
// which it is given a list of their addresses.
var SolveRightEx = define(op.Op{
	Name: "_linalg_solve_ex.right", Run: func(c *op.Call) {
		a := c.In[0]
		n := a.Dim(1)
		if batch := a.Dim(0); batch == 1 || n >= 512 {
			c.Fail("linear equations of %d x %d numbers, %d at once, are not modelled: cuSOLVER solves those of one matrix and those of 512 and more, and asks for scratch of its own", n, n, batch)
		}
		c.Return(c.New(a.LikeDense(), a.DType), c.New(a.LikeDense(), a.DType), c.NewShape(tensor.Int32, a.Dim(0), n), c.NewShape(tensor.Int32, a.Dim(0)))
		list := c.NewShape(tensor.Int64, a.Dim(0))
		c.BlasHandle()
		c.Drop(list)
		solveFactored(c, a, false)
	},
	Save: []op.Save{op.In(0), op.Out(1), op.Out(2), op.Out(0)}, NoGrad: []int{1, 2, 3}, Node: "LinalgSolveExBackward0",
	Grad: func(b *op.Back) { // linalg_solve_backward
		a := b.SavedIn(0)
		gb := b.New(a.LikeDense(), a.DType)
		solveFactored(&b.Call, a, true)
		if b.Need(0) {
			product := b.New(a.LikeDense(), a.DType)
			b.BlasHandle()
			b.Set(0, b.New(a.LikeDense(), a.DType))
			b.Drop(product)
		}
		if b.Need(1) {
			b.Set(1, gb)
		} else {
			b.Drop(gb)
		}
	},
	Source: "aten/src/ATen/native/BatchLinearAlgebra.cpp: linalg_solve_ex_out, linalg_lu_solve_out; cuda/linalg/BatchLinearAlgebra.cpp: lu_factor, lu_solve_kernel; torch/csrc/autograd/FunctionsManual.cpp: linalg_solve_backward",
})

// solveFactored is lu_solve_kernel of as many right sides as there are rows: cuBLAS solves
// small equations, and large ones are two triangular ones.
func solveFactored(c *op.Call, a *op.Tensor, transposed bool) {
	batch, n := a.Dim(0), a.Dim(1)
	lists := func() {
		x, y := c.NewShape(tensor.Int64, batch), c.NewShape(tensor.Int64, batch)
		c.Drop(y)
		c.Drop(x)
	}
	if n <= 16 {
		lists()
		return
	}
	triangular := func() { // triangular_solve_kernel
		if batch > 8 || n < 64 {
			lists()
		}
	}
	numbers := c.NewShape(tensor.Int64, n)
	perm := c.NewShape(tensor.Int64, batch, n)
	c.Drop(numbers)
	if transposed {
		triangular()
		triangular()
		c.Drop(c.New(a.LikeDense(), a.DType)) // B.clone()
		c.Drop(perm)
		return
	}
	identity := c.NewShape(tensor.Int64, n)
	inverse := c.NewShape(tensor.Int64, batch, n)
	permuted := c.New(a.LikeDense(), a.DType)
	triangular()
	triangular()
	c.Drop(permuted)
	c.Drop(inverse)
	c.Drop(identity)
	c.Drop(perm)
}
