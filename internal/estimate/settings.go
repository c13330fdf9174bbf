package estimate

import (
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/graph/hf"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/tensor"
)

// settings says which params the model has, which of them are sizes of its inputs,
// and what of all that decides the figures was assumed.
func (j *Job) settings(r *report.Report) {
	r.Params, r.Deciding, r.Assumed = map[string]any{}, []string{}, []string{}
	for _, name := range j.Definer.ParamNames() {
		x, _ := j.Definer.Env.Lookup(name)
		if n, ok := j.Param(name); ok {
			x = n
		}
		if isPlain(x) && !slices.Contains(hf.Own, name) {
			r.Params[name] = x
		}
	}
	assume := func(key string, assumed bool) {
		if assumed {
			r.Assumed = append(r.Assumed, key)
		}
	}
	own := j.Spec.Trainer == nil // a trainer's defaults are those of its program
	assume("train.batch_size", own && j.Spec.Assumed("train.batch_size"))
	for _, name := range j.Definer.ParamNames() {
		if j.decides(name) {
			r.Deciding = append(r.Deciding, name)
			assume("params."+name, j.Spec.ParamAssumed(name))
		}
	}
	assume("train.precision", own && j.Spec.Assumed("train.precision"))
	assume("train.optimizer", own && j.Program.Inference == "" && len(j.Spec.Optimizers) == 0 && j.Spec.Assumed("train.optimizer"))
	assume("torch", j.Spec.Assumed("torch"))
	assume("device.gpu", !j.Machine.Given || j.Spec.Given("device.gpu") != nil && j.Spec.Assumed("device.gpu"))
}

// BatchSize is how many samples a batch has, as train.batch_size and the arguments of
// trainers say: a batch of one sequence has the samples that it is made of,
// and that of DPOTrainer pairs.
func (j *Job) BatchSize() int64 {
	if t := j.Spec.Trainer; t.Flattened() || t != nil && t.DPO != nil {
		return t.Args().Int("per_device_train_batch_size")
	}
	return j.Program.Batch
}

// precision is train.precision, and the type of weights in another than float32.
func (j *Job) precision() string {
	of := j.Spec.Train.Precision.V
	half := map[tensor.DType]string{tensor.BFloat16: "bf16", tensor.Float16: "fp16"}
	for _, m := range j.Program.Models {
		if m.Eval || m.Loaded == nil && j.Spec.Trainer == nil { // a model that others learn from has types of its own
			continue
		}
		weights := half[j.Program.DType] // a trainer's precision is that of autocast alone
		if m.Loaded != nil {
			weights = half[m.Loaded.DType]
		}
		switch q := m.Quantized; {
		case m.Loaded != nil && q != nil:
			weights = fmt.Sprintf("%d-bit", q.Of.Bits)
		case weights == "":
			return of
		case of == "fp32":
			return weights
		}
		return weights + " weights, " + of
	}
	return of
}

// Param is the value of an integer param of what defines the model; false if there is
// none.
func (j *Job) Param(name string) (int64, bool) {
	x, _ := j.Definer.Env.Lookup(name)
	n, ok := x.(int64)
	if p := j.Spec.PEFT.Embeddings(); p != nil && name == "seq" { // in the model, samples are longer by these
		n -= p.Tokens.V
	}
	return n, ok
}

// decides reports whether a param is a size of an input, beside the batch.
func (j *Job) decides(name string) bool {
	n, ok := j.Param(name)
	if !ok || j.Definer.Model == nil {
		return false
	}
	for _, in := range j.Definer.Model.Inputs {
		if in.V.Shape == nil || !in.V.Shape.Names()[name] {
			continue
		}
		for _, given := range j.Program.Inputs {
			if given.Name == in.Name.V && slices.Contains(given.Size[1:], n) {
				return true
			}
		}
	}
	return false
}

// isPlain reports whether a value of an expression is one of JSON.
func isPlain(x any) bool {
	switch x := x.(type) {
	case nil, bool, int64, float64, string:
		return true
	case []any:
		return !slices.ContainsFunc(x, func(it any) bool { return !isPlain(it) })
	}
	return false
}
