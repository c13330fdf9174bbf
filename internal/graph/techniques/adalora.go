package techniques

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// adaloraTuner is the method of AdaLoraConfig.
func (j *Job) adaloraTuner(c *spec.AdaLoraConfig) *tuner {
	switch {
	case c.TotalStep.V == 0:
		j.fail(c.At, "adalora needs total_step, the number of steps, without which PEFT fails")
	case c.TInit.V+c.TFinal.V >= c.TotalStep.V:
		j.fail(c.TotalStep.At, "total_step must be more than tinit and tfinal together, PEFT says")
	}
	if l := j.Spec.Trainer; l != nil && l.HF == nil && l.SFT == nil {
		j.fail(c.At, "adalora is modelled with the trainers hf and sft, not with %s", l.Key())
	}
	weight := c.Weight.V
	t := &tuner{name: "adalora", at: c.At, targets: &c.Targets, task: c.TaskType, bias: c.Bias.V, defaults: adaloraTargets, weight: &weight}
	t.wrap = func(path string, base *program.Class, dtype tensor.DType) (*program.Class, string) {
		a := &loraArgs{r: c.InitR.V, alpha: c.Alpha.V, dropout: c.Dropout.V}
		args := a.python()
		// ParameterDict makes a parameter that is trained of what .to returns, unless that
		// is the parameter itself (BaseTunerLayer._move_adapter_to_device_of_base_layer).
		trained := t.onDevice || base.Params[0].DType != tensor.Float32
		if trained {
			args += ", rank=True"
		}
		return j.adaloraLayer(path, base, dtype, a, trained, c.At), args
	}
	return t
}

// adaloraLayer is peft.tuners.adalora.layer.SVDLinear: what the adapter computes is
// added to the layer's own result in place. Its rank is a parameter, too; it is as good as
// a buffer where it is not trained. Around quantized layers (peft/tuners/adalora/bnb.py) it
// converts outside of autocast alone, and before it scales; around eight bits it adds to
// no result in place, around four to a copy.
func (j *Job) adaloraLayer(path string, base *program.Class, dtype tensor.DType, a *loraArgs, rankTrained bool, at spec.Span) *program.Class {
	defer j.replacing(at, "adalora: "+path)
	plain, four, layer := quantizedLinear(base), fourBits(base), nn.SVDLinear
	switch {
	case four:
		layer = nn.SVDLinear4bit
	case plain:
		layer = nn.SVDLinear8bit
	}
	b := &adapter{j.around(layer, base, dtype), a}
	if !isLinear(base) {
		b.Fail("", "AdaLoRA is modelled around linear layers")
	}
	in, out := linearSize(base)
	x := b.input(in)
	drop, dropped := b.dropout(x)
	right, left, values := b.Param("lora_A", a.r, in), b.Param("lora_B", out, a.r), b.Param("lora_E", a.r, 1)
	registered := b.Buffer
	if rankTrained {
		registered = b.Param
	}
	rank := registered("ranknum", 1)
	number := func(n float64) *aten.BinaryArgs {
		return &aten.BinaryArgs{Other: op.Number{Set: true, Float: true, Value: n}}
	}
	result := b.base(x, out)
	var expected value.Value
	switch {
	case four:
		result = b.Let("result", b.Do(aten.Clone, nil, result))
		rank = b.Let("ranknum", b.Do(aten.Add, number(1e-5), rank))
		expected = b.Let("expected_dtype", b.Do(aten.DTypeOf, nil, result))
		x = b.Let("x", b.Do(aten.ToTypeOf, &aten.ToTypeOfArgs{Plain: true}, x, right))
	case plain:
		expected = b.Let("expected_dtype", b.Do(aten.DTypeOf, nil, result))
		x = b.Let("x", b.Do(aten.ToTypeOf, &aten.ToTypeOfArgs{Plain: true}, x, right))
		rank = b.Let("ranknum", b.Do(aten.Add, number(1e-5), rank))
	default:
		rank = b.Let("ranknum", b.Do(aten.Add, number(1e-5), rank))
		x = b.Let("x", b.Do(aten.ToTypeOf, nil, x, right))
	}
	y := b.CallChild(drop, dropped, x)
	y = b.Do(aten.Matmul, nil, y, b.Do(aten.T, nil, b.Do(aten.Mul, &aten.BinaryArgs{}, right, values)))
	y = b.Do(aten.Matmul, nil, y, b.Do(aten.T, nil, left))
	if plain {
		y = b.Let("output", y)
		y = b.Let("output", b.Do(aten.ToTypeOf, &aten.ToTypeOfArgs{Plain: true}, y, expected))
	}
	y = b.Do(aten.Div, &aten.BinaryArgs{}, b.Do(aten.Mul, number(a.times()), y), rank)
	if plain {
		y = b.Let("output", y)
	}
	row := aten.AddInPlace
	if plain && !four {
		row = aten.Add
	}
	b.Finish(b.Let("result", b.Do(row, &aten.BinaryArgs{}, result, y)))
	return b.Class
}

// times is by how much an adapter of AdaLoRA is multiplied before it is divided by its rank.
func (a *loraArgs) times() float64 {
	if a.alpha > 0 {
		return a.alpha
	}
	return float64(a.r)
}

// regularized is the forward of a model with AdaLoRA (AdaLoraModel.forward): to the loss
// that the model returns last it adds how far the matrices are from orthogonal ones.
func (j *Job) regularized(root *program.Class, a *program.Adapters, at spec.Span) program.Fused {
	defer j.replacing(at, "adalora")
	if !returnsLoss(root.Forward) {
		j.fail(at, "adalora: its regularization is a part of the loss that a model of transformers returns; this model returns none, or the loop computes another")
	}
	own, forward := *root, *root.Forward
	forward.Name, forward.Kind = "model_forward", program.Function
	b := module.NewBuilder(j.Env, &own, root.Forward.Slots[:root.Forward.Params:root.Forward.Params]...)
	b.Func.Merged = forward.Merged
	call := &program.Expr{Kind: program.CallFun, Func: &forward}
	for i := range forward.Params {
		call.Args = append(call.Args, &program.Expr{Kind: program.Local, Slot: i})
	}
	scalar := value.Tensor(&op.Tensor{Layout: tensor.Contiguous(tensor.D()), DType: tensor.Float32})
	outputs := b.Let("outputs", value.Value{Expr: call, Meta: scalar})
	loss := value.Value{Expr: &program.Expr{Kind: program.Item, Slot: outputs.Expr.Slot, Index: -1}, Meta: scalar}
	var sum value.Value
	n := 0
	for _, l := range a.Layers {
		for i, name := range []string{"lora_A", "lora_B"} {
			p := l.Class.FindParam(name)
			of := b.Own(program.Join(l.Path, name), p.DType, p.Size)
			first, second := of, b.Do(aten.T, nil, of)
			if i == 1 {
				first, second = second, first
			}
			covariance := b.Let("para_cov", b.Do(aten.Matmul, nil, first, second))
			eye := b.Let("I", b.Do(aten.EyeLike, nil, covariance))
			norm := b.Do(aten.VectorNorm, &aten.NormArgs{}, b.Do(aten.Sub, &aten.BinaryArgs{}, covariance, eye))
			if n++; n == 1 {
				sum = b.Let("regu_loss", b.Do(aten.Add, &aten.BinaryArgs{Left: op.Number{Set: true}}, norm))
			} else {
				sum = b.Let("regu_loss", b.Do(aten.AddInPlace, &aten.BinaryArgs{}, sum, norm))
			}
		}
	}
	mean := b.Let("regu_loss", b.Do(aten.Div, &aten.BinaryArgs{Other: op.Number{Set: true, Value: float64(n)}}, sum))
	b.Run(aten.AddInPlace, &aten.BinaryArgs{}, loss, b.Do(aten.Mul, &aten.BinaryArgs{Other: op.Number{Set: true, Float: true, Value: *a.Regularized}}, mean))
	b.Emit(program.Stmt{Kind: program.Return, Value: outputs.Expr})
	return program.Fused{Class: root, Forward: b.Func}
}

// returnsLoss reports whether a function ends with a tuple whose last item is not None.
func returnsLoss(f *program.Func) bool {
	st := f.Body[len(f.Body)-1]
	items := st.Values
	if st.Value != nil && st.Value.Kind == program.TupleLit {
		items = st.Value.Args
	}
	if st.Kind != program.Return || len(items) < 2 {
		return false
	}
	last := items[len(items)-1]
	return last.Kind != program.Const || last.Value != nil
}
