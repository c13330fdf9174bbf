package techniques

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// ia3Tuner is the method of IA3Config.
func (j *Job) ia3Tuner(c *spec.IA3Config) *tuner {
	targets := &spec.Targets{TargetModules: c.TargetModules, ExcludeModules: c.ExcludeModules, ModulesToSave: c.ModulesToSave}
	feeds := j.feedforward(c)
	return &tuner{
		name: "ia3", at: c.At, targets: targets, task: c.TaskType, bias: "none", defaults: ia3Targets,
		wrap: func(path string, base *program.Class, dtype tensor.DType) (*program.Class, string) {
			layer := nn.IA3Linear
			if feeds(path) {
				layer = nn.IA3Feedforward
			}
			return j.ia3Layer(layer, path, base, dtype, c.At), ""
		},
	}
}

// feedforward reports which layers scale their input. Without target_modules it is
// PEFT's default; a name is the end of a path.
func (j *Job) feedforward(c *spec.IA3Config) matcher {
	ends := func(names []string) matcher {
		return func(path string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(path, n) })
		}
	}
	if c.Feedforward == nil || c.Feedforward.Kind == spec.Null {
		return func(path string) bool { return ends(ia3Feedforward[j.Models[0].Type])(path) }
	}
	list, lone := j.Spec.Errs.Strings(c.Feedforward, "feedforward_modules", j.Spec.Env)
	if lone {
		return j.regexp(list[0], "feedforward_modules", "", "")
	}
	var names []string
	for _, s := range list {
		names = append(names, s.V)
	}
	return ends(names)
}

// ia3Layer is peft.tuners.ia3.layer.Linear: the vector, multiplied by one as the
// product of all adapters begins, scales the input or the output.
func (j *Job) ia3Layer(layer *nn.Layer, path string, base *program.Class, dtype tensor.DType, at spec.Span) *program.Class {
	defer j.replacing(at, "ia3: "+path)
	b := j.around(layer, base, dtype)
	if !isLinear(base) || quantizedLinear(base) {
		b.Fail("", "(IA)3 is modelled around linear layers that are not quantized")
	}
	in, out := linearSize(base)
	scaling := func(size ...int64) value.Value {
		flat := b.Do(aten.Flatten, &aten.FlattenArgs{End: -1}, b.Param("ia3_l", size...))
		one := &aten.BinaryArgs{Other: op.Number{Set: true, Value: 1}}
		return b.Let("ia3_scaling", b.Do(aten.Mul, one, flat))
	}
	x := b.input(in)
	if layer == nn.IA3Feedforward {
		scale := scaling(1, in)
		dtype := b.Let("previous_dtype", b.Do(aten.DTypeOf, nil, x))
		x = b.Let("x", b.Do(aten.ToTypeOf, nil, x, b.Own("ia3_l", b.DType(), []int64{1, in})))
		interm := b.Let("interm", b.Do(aten.ToTypeOf, nil, b.Do(aten.Mul, &aten.BinaryArgs{}, x, scale), dtype))
		b.Finish(b.base(interm, out))
		return b.Class
	}
	scale := scaling(out, 1)
	result := b.base(x, out)
	dtypeOf := b.Let("result_dtype", b.Do(aten.DTypeOf, nil, result))
	b.Finish(b.Let("result", b.Do(aten.ToTypeOf, nil, b.Do(aten.Mul, &aten.BinaryArgs{}, result, scale), dtypeOf)))
	return b.Class
}
