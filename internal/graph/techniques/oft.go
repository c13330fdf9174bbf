package techniques

import (
	"fmt"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// oftTuner is the method of OFTConfig.
func (j *Job) oftTuner(c *spec.OFTConfig) *tuner {
	switch r, size := c.R.V, c.BlockSize.V; {
	case r == 0 && size == 0:
		j.fail(c.At, "oft needs r or oft_block_size")
	case r != 0 && size != 0:
		at := c.R.At
		if c.BlockSize.Set {
			at = c.BlockSize.At
		}
		j.fail(at, "r and oft_block_size exclude each other, as their product is in_features; with r, write oft_block_size: 0")
	}
	return &tuner{
		name: "oft", at: c.At, targets: &c.Targets, task: c.TaskType, bias: c.Bias.V, defaults: loraTargets,
		wrap: func(path string, base *program.Class, dtype tensor.DType) (*program.Class, string) {
			return j.oftLayer(path, base, dtype, c)
		},
	}
}

// oftBlocks are the number of blocks of a layer and their size (OFTLayer.update_layer).
func oftBlocks(c *spec.OFTConfig, in int64) (blocks, size int64) {
	if r := c.R.V; r != 0 {
		r = divisor(in, r)
		return r, in / r
	}
	size = divisor(in, c.BlockSize.V)
	return in / size, size
}

// divisor is the number nearest to n that divides in (adjust_oft_parameters).
func divisor(in, n int64) int64 {
	if n >= in {
		return in
	}
	more, less := n, n
	for more <= in && in%more != 0 {
		more++
	}
	for less > 1 && in%less != 0 {
		less--
	}
	if n-less <= more-n {
		return less
	}
	return more
}

// oftLayer is peft.tuners.oft.layer.Linear: blocks of the input are rotated by matrices
// that are computed of skew-symmetric ones. Around a quantized layer it converts outside of
// autocast alone (peft/tuners/oft/bnb.py).
func (j *Job) oftLayer(path string, base *program.Class, dtype tensor.DType, c *spec.OFTConfig) (*program.Class, string) {
	defer j.replacing(c.At, "oft: "+path)
	plain, kind := quantizedLinear(base), nn.OFTLinear
	if plain {
		kind = nn.OFTQuantized
	}
	b := j.around(kind, base, dtype)
	if !isLinear(base) || isConv1D(base) {
		b.Fail("", "OFT is modelled around nn.Linear")
	}
	in, out := linearSize(base)
	blocks, size := oftBlocks(c, in)
	own := blocks
	if c.Share.V {
		own = 1
	}
	pairs := size * (size - 1) / 2
	weight := b.Param("oft_R", own, pairs)
	index := func(name string) value.Value {
		b.Class.Buffers = append(b.Class.Buffers, program.Param{Name: name, Size: []int64{pairs}, DType: tensor.Int64, Fixed: true, NonPersistent: true})
		return b.Own(name, tensor.Int64, []int64{pairs})
	}
	rows, cols := index("rows"), index("cols")
	x := b.input(in)
	previous := b.Let("previous_dtype", b.Do(aten.DTypeOf, nil, x))
	x = b.Let("x", b.Do(aten.ToTypeOf, &aten.ToTypeOfArgs{Plain: plain}, x, weight))
	x = b.Let("x", b.Inline("oft_rotate", []string{"x"}, []value.Value{x}, func(f *module.Builder, args []value.Value) []value.Value {
		x := args[0]
		required := f.Let("required_dtype", f.Do(aten.DTypeOf, nil, x))
		x = f.Let("x", f.Do(aten.ToTypeOf, nil, x, weight))
		if c.COFT.V {
			f.Run(aten.Constrain, &aten.PutPairsArgs{N: size}, weight)
		}
		rotate := f.Let("orth_rotate", f.Inline("cayley_batch", []string{"Q"}, []value.Value{weight}, func(f *module.Builder, args []value.Value) []value.Value {
			return []value.Value{cayley(f, args[0], rows, cols, own, size, c, b.DType())}
		}))
		reshaped := f.Let("x_reshaped", f.Do(aten.Unflatten, &aten.UnflattenArgs{Dim: -1, Sizes: []int64{blocks, size}}, x))
		if c.Share.V {
			rotate = f.Let("orth_rotate", f.Do(aten.Repeat, &aten.RepeatArgs{Repeats: []int64{blocks, 1, 1}}, rotate))
		}
		reshaped = f.Let("x_rotated_reshaped", f.Do(aten.Einsum, &aten.EinsumArgs{Equation: "...rk,rkc->...rc"}, reshaped, rotate))
		rotated := f.Let("x_rotated", f.Do(aten.Flatten, &aten.FlattenArgs{Start: -2, End: -1}, reshaped))
		return []value.Value{f.Do(aten.ToTypeOf, nil, rotated, required)}
	}))
	if plain {
		x = b.Let("x", b.Do(aten.ToTypeOf, &aten.ToTypeOfArgs{Plain: true}, x, previous))
		b.Finish(b.base(x, out))
	} else {
		result := b.base(b.Do(aten.ToTypeOf, nil, x, previous), out)
		b.Finish(b.Let("result", b.Do(aten.ToTypeOf, nil, result, previous)))
	}
	args := fmt.Sprintf("blocks=%d, size=%d, terms=%d", blocks, size, c.Terms.V)
	if !c.Cayley.V {
		args = fmt.Sprintf("blocks=%d, size=%d, terms=None", blocks, size)
	}
	if c.Share.V {
		args += ", share=True"
	}
	if c.COFT.V {
		args += ", coft=True"
	}
	return b.Class, args
}

// cayley is OFTRotationModule._cayley_batch, by terms of the Neumann series, or solved.
func cayley(f *module.Builder, q, rows, cols value.Value, blocks, size int64, c *spec.OFTConfig, dtype tensor.DType) value.Value {
	skew := f.Let("Q_skew", f.Inline("skew_symmetric", []string{"vec"}, []value.Value{q}, func(f *module.Builder, args []value.Value) []value.Value {
		m := f.Let("matrix", f.Do(aten.PutPairs, &aten.PutPairsArgs{N: size}, args[0], rows, cols))
		m = f.Let("matrix", f.Do(aten.Sub, &aten.BinaryArgs{}, m, f.Do(aten.Transpose, &aten.TransposeArgs{Dim0: -2, Dim1: -1}, m)))
		return []value.Value{m}
	}))
	if !c.Cayley.V {
		return f.Do(aten.ToTypeOf, nil, solved(f, "R", skew, size), q)
	}
	terms := c.Terms.V
	r := f.Let("R", f.Do(aten.Repeat, &aten.RepeatArgs{Repeats: []int64{blocks, 1, 1}}, f.Do(aten.Eye, &aten.EyeArgs{N: size, DType: &dtype})))
	if terms <= 1 {
		return r
	}
	twice := func(x value.Value) { r = f.Let("R", f.Do(aten.AddTimesInPlace, &aten.AddTimesArgs{Alpha: 2}, r, x)) }
	twice(skew)
	if terms > 2 {
		square := f.Let("Q_squared", f.Do(aten.Bmm, nil, skew, skew))
		twice(square)
		power := f.Let("Q_power", square)
		for range terms - 4 {
			power = f.Let("Q_power", f.Do(aten.Bmm, nil, power, skew))
			twice(power)
		}
		power = f.Let("Q_power", f.Do(aten.Bmm, nil, power, skew))
		r = f.Let("R", f.Do(aten.AddInPlace, &aten.AddArgs{}, r, power))
	}
	return r
}

// solved are the rotations that skew-symmetric matrices mean: those that take the sum with the
// identity to the difference.
func solved(f *module.Builder, name string, skew value.Value, size int64) value.Value {
	float := tensor.Float32
	id := f.Let("id_mat", f.Do(aten.Eye, &aten.EyeArgs{N: size, DType: &float}))
	more, less := f.Do(aten.Add, &aten.AddArgs{}, id, skew), f.Do(aten.Sub, &aten.BinaryArgs{}, id, skew)
	return f.Let(name, f.Do(aten.SolveRight, nil, more, less))
}
