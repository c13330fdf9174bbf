package techniques

import (
	"fmt"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// boftTuner is the method of BOFTConfig.
func (j *Job) boftTuner(c *spec.BOFTConfig) *tuner {
	switch blocks, size := c.Blocks.V, c.BlockSize.V; {
	case blocks == 0 && size == 0:
		j.fail(c.At, "boft needs boft_block_size or boft_block_num")
	case blocks != 0 && size != 0:
		at := c.Blocks.At
		if c.BlockSize.Set {
			at = c.BlockSize.At
		}
		j.fail(at, "boft_block_size and boft_block_num exclude each other, as their product is in_features; with boft_block_num, write boft_block_size: 0")
	}
	t := &tuner{name: "boft", at: c.At, targets: &c.Targets, task: c.TaskType, bias: c.Bias.V, defaults: loraTargets}
	t.wrap = func(path string, base *program.Class, dtype tensor.DType) (*program.Class, string) {
		if t.onDevice {
			j.fail(c.At, "boft of a model whose weights are loaded onto the GPU is not modelled: PEFT makes the permutations of each layer on the CPU, and Trainer moves them later; leave load.device_map out")
		}
		return j.boftLayer(path, base, dtype, c)
	}
	return t
}

// boftLayer is peft.tuners.boft.layer.Linear, as it is without PEFT's CUDA extension: a matrix
// of all blocks rotates the input, and what the layer gives is scaled.
func (j *Job) boftLayer(path string, base *program.Class, dtype tensor.DType, c *spec.BOFTConfig) (*program.Class, string) {
	defer j.replacing(c.At, "boft: "+path)
	b := j.around(nn.BOFTLinear, base, dtype)
	if !isLinear(base) || isConv1D(base) || quantizedLinear(base) {
		b.Fail("", "BOFT is modelled around nn.Linear, if it is not quantized")
	}
	in, out := linearSize(base)
	blocks, size := c.Blocks.V, c.BlockSize.V
	switch {
	case blocks != 0 && in%blocks != 0:
		b.Fail("", "in_features %d is no multiple of boft_block_num %d, with which PEFT fails", in, blocks)
	case blocks == 0 && in%size != 0:
		b.Fail("", "in_features %d is no multiple of boft_block_size %d, with which PEFT fails", in, size)
	case blocks != 0:
		size = in / blocks
	default:
		blocks = in / size
	}
	rotations, scales := b.Param("boft_R", 1, blocks, size, size), b.Param("boft_s", out, 1)
	b.Class.Buffers = append(b.Class.Buffers, program.Param{Name: "boft_P", Size: []int64{1, in, in}, DType: tensor.Float32, Fixed: true, NonPersistent: true})
	permutation := b.Own("boft_P", tensor.Float32, []int64{1, in, in})
	x := b.input(in)
	previous := b.Let("previous_dtype", b.Do(aten.DTypeOf, nil, x))
	whole := b.Let("boft_rotation", b.Do(aten.EyeOf, &aten.EyeOfArgs{N: in}, x))
	scale := b.Let("boft_scale", b.Do(aten.NewOnes, &aten.FullArgs{FillArgs: aten.FillArgs{Size: []int64{out, 1}}}, x))
	flat := b.Let("boft_R", b.Do(aten.Flatten, &aten.FlattenArgs{End: 1}, rotations))
	rotate := b.Let("orth_rotate_butterfly", b.Inline("cayley_batch", []string{"data"}, []value.Value{flat}, func(f *module.Builder, args []value.Value) []value.Value {
		data := args[0]
		half := &aten.BinaryArgs{Left: op.Number{Set: true, Float: true, Value: 0.5}}
		skew := f.Let("skew_mat", f.Do(aten.Mul, half, f.Do(aten.Sub, &aten.BinaryArgs{}, data, f.Do(aten.Transpose, &aten.TransposeArgs{Dim0: 1, Dim1: 2}, data))))
		return []value.Value{f.Do(aten.ToTypeOf, nil, solved(f, "Q", skew, size), data)}
	}))
	if c.Dropout.V > 0 {
		rotate = b.Let("orth_rotate_butterfly", b.Inline("boft_dropout", []string{"x"}, []value.Value{rotate}, func(f *module.Builder, args []value.Value) []value.Value {
			f.Finish(args[0])
			f.InEval(1)
			return []value.Value{f.Let("x", f.Do(aten.KeepBlocks, &aten.KeepBlocksArgs{P: c.Dropout.V}, args[0]))}
		}))
	}
	diagonal := b.Let("block_diagonal_butterfly", b.Do(aten.BlockDiagonal, nil, rotate))
	diagonal = b.Let("block_diagonal_butterfly", b.Do(aten.Unsqueeze, &aten.DimArgs{}, diagonal))
	permutation = b.Let("boft_P", b.Do(aten.ToTypeOf, nil, permutation, x))
	diagonal = b.Let("block_diagonal_butterfly", b.Do(aten.ToTypeOf, nil, diagonal, x))
	all := b.Let("butterfly_oft_mat_batch", b.Do(aten.Bmm, nil, diagonal, b.Do(aten.Transpose, &aten.TransposeArgs{Dim0: 1, Dim1: 2}, permutation)))
	all = b.Let("butterfly_oft_mat_batch", b.Do(aten.Bmm, nil, permutation, all))
	one := b.Let("butterfly_oft_mat", b.Do(aten.Select, &aten.SelectArgs{}, all))
	whole = b.Let("boft_rotation", b.Do(aten.Matmul, nil, one, whole))
	scale = b.Let("boft_scale", b.Do(aten.Mul, &aten.BinaryArgs{}, scales, scale))
	whole = b.Let("boft_rotation", b.Do(aten.ToTypeOf, nil, whole, previous))
	rotated := b.Let("x_rotated", b.Do(aten.Matmul, nil, x, whole))
	result := b.base(rotated, out)
	var bias value.Value
	if p := base.FindParam("bias"); p != nil {
		bias = b.Let("bias", b.Own(program.BaseLayer+".bias", p.DType, p.Size))
		result = b.Let("result", b.Do(aten.Sub, &aten.BinaryArgs{}, result, bias))
	}
	result = b.Let("result", b.Do(aten.Mul, &aten.BinaryArgs{}, result, b.Do(aten.Squeeze, &aten.SqueezeArgs{Dim: []int64{-1}}, scale)))
	if !bias.Absent() {
		result = b.Let("result", b.Do(aten.Add, &aten.AddArgs{}, result, bias))
	}
	b.Finish(b.Let("result", b.Do(aten.ToTypeOf, nil, result, previous)))
	args := fmt.Sprintf("blocks=%d, size=%d", blocks, size)
	if c.Dropout.V > 0 {
		args += fmt.Sprintf(", dropout=%v", c.Dropout.V)
	}
	return b.Class, args
}
