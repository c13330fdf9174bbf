package hf

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// Weights say how from_pretrained reads them from a checkpoint.
type Weights struct {
	DType    tensor.DType
	Read     tensor.DType         // in which they are read, where DType is that which DeepSpeed's engine converts them to
	OnDevice bool                 // to the GPU, not to host memory
	Auto     bool                 // accelerate infers the device_map
	Convert  []program.Conversion // what follows; the last is that of prepare_model_for_kbit_training
	Quantize *spec.BitsAndBytes   // nil: they are not quantized
	Stored   bool                 // they are quantized in the checkpoint
	Kept     []string             // ends of paths of modules that are never quantized
	Unpacked []string             // names of modules of which the job needs the weight itself
	Names    *program.Names       // of the checkpoint; nil: the model's
	Float32  []string             // parts of the names of tensors that are read in float32
}

// Trained is the type of the parameters of the module at a path when the job trains; ""
// is the model itself, whose type all modules have that no conversion names.
func (w *Weights) Trained(path string) tensor.DType {
	if d, ok := program.Converted(w.Convert, path); ok {
		return d
	}
	return w.DType
}

// TrainsCopies reports whether copies of modules are converted, which have another type than the
// parameters that other modules share with these.
func (w *Weights) TrainsCopies() bool {
	return w != nil && slices.ContainsFunc(w.Convert, func(c program.Conversion) bool { return c.Copies })
}

// halves are the names of train.precision of models that have 16 bits as a whole.
var halves = map[tensor.DType]string{tensor.BFloat16: "bf16", tensor.Float16: "fp16"}

// precision is that of the model: its weights' if they have 16 bits, else the job's.
func (h *model) precision() string {
	if h.Weights != nil {
		if p := halves[h.Weights.Trained("")]; p != "" {
			return p
		}
	}
	return h.Spec.Train.Precision.V
}

// samples is the type of the images and the sound of a batch: that of the weights, to
// which a loop of one's own converts them; transformers' processors give float32, and
// its Trainer leaves it.
func (h *model) samples() tensor.DType {
	if h.Spec.Trainer.OfTransformers() {
		return tensor.Float32
	}
	switch h.precision() {
	case "bf16":
		return tensor.BFloat16
	case "fp16":
		return tensor.Float16
	}
	return tensor.Float32
}

// readWeights settles what load says.
func (h *model) readWeights() {
	l := h.m.Load
	if l == nil {
		return
	}
	if p := &h.Spec.Train.Precision; p.V == "bf16" || p.V == "fp16" {
		h.fail(p.At, "load sets the type of the weights: write load: {dtype: %s}, and a precision of fp32, amp-bf16 or amp-fp16", map[string]string{"bf16": "bfloat16", "fp16": "float16"}[p.V])
	}
	w := &Weights{DType: h.loadType(l), OnDevice: h.onDevice(l), Auto: h.infers(l), Convert: h.conversions(l), Names: h.c.names()}
	if w.DType != tensor.Float32 {
		w.Float32 = float32s[cmp.Or(h.c.Around, h.c.Type)]
	}
	q := l.Quantize
	if stored := h.c.BitsAndBytes; stored != nil { // goes before an argument
		stored.Compute.At = h.m.HF.At
		q, w.Stored = stored, true
	}
	if q != nil {
		if q.Method.Set && q.Method.V != "bitsandbytes" {
			h.fail(q.Method.At, "quant_method %s is not modelled; modelled is bitsandbytes", q.Method.V)
		}
		if !q.Load4bit.V && !q.Load8bit.V {
			h.fail(q.At, "quantization_config needs load_in_4bit: true or load_in_8bit: true")
		}
		if h.Spec.Quantize != nil {
			h.fail(h.Spec.Quantize.At, "quantize and the quantization_config of load exclude each other")
		}
		w.Quantize = q
		if device := l.DeviceMap; device != nil && device.Kind != spec.Null && !w.OnDevice {
			h.fail(device.Span, "quantized weights are read to the GPU; write device_map: {\"\": 0}")
		}
		w.OnDevice = true // update_device_map of the quantizer
	}
	if w.OnDevice && h.c.Around == "qwen3_vl_moe" {
		h.NotModelled = append(h.NotModelled, note.Asked.New("transposed experts of %s: from_pretrained transposes the experts of a layer on the GPU if the checkpoint has them as releases before 5 did, which takes their bytes twice while it does; planned as transformers 5 saves them", Named(h.m).V).Of("model.load"))
	}
	h.Weights = w
}

// conversions are those of load, then that of prepare_model_for_kbit_training.
func (h *model) conversions(l *spec.Load) []program.Conversion {
	var out []program.Conversion
	for _, c := range l.Convert {
		x := program.Conversion{DType: h.Spec.Errs.DType(c.DType), Copies: c.Trained.V, EmptyCache: c.EmptyCache.V}
		if !x.DType.IsFloating() {
			h.fail(c.DType.At, "parameters are converted to a floating-point type, not to %v", x.DType)
		}
		x.Modules, x.Except = h.patterns(c.Modules), h.patterns(c.Except)
		out = append(out, x)
	}
	if h.Spec.Prepares() {
		out = append(out, program.Conversion{Modules: program.All, DType: tensor.Float32, EmptyCache: h.Spec.PEFT.Prepare.ClearCache.V})
	}
	return out
}

// patterns reads patterns of paths.
func (h *model) patterns(list []spec.String) (out program.Patterns) {
	for _, m := range list {
		if err := program.CheckPattern(m.V); err != nil {
			h.fail(m.At, "%v", err)
		}
		out = append(out, m.V)
	}
	return out
}

// loadType is the type in which weights are loaded: auto is that of the
// configuration, and what releases before 5 take without dtype is float32.
func (h *model) loadType(l *spec.Load) tensor.DType {
	name := l.DType.V
	if name == "auto" {
		name = h.c.DType
		older := !l.DType.Set && h.m.With != nil && h.m.With.Get("transformers") != nil && strings.HasPrefix(h.m.With.Get("transformers").Str, "4.")
		if name == "" || older {
			return tensor.Float32
		}
	}
	at := l.DType.At
	if !l.DType.Set || l.DType.V == "auto" {
		at = h.m.HF.At
	}
	d := h.Spec.Errs.DType(spec.String{V: name, At: at})
	if !d.IsFloating() {
		h.fail(at, "weights are loaded in a floating-point type, not %v", d)
	}
	return d
}

// onDevice reports whether device_map names the GPU.
func (h *model) onDevice(l *spec.Load) bool {
	v := l.DeviceMap
	if v == nil {
		return false
	}
	places := map[bool]bool{}
	if v.Kind == spec.Map {
		for _, p := range v.Pairs {
			places[h.place(p.Value)] = true
		}
	} else {
		places[h.place(v)] = true
	}
	if len(places) > 1 {
		h.fail(v.Span, "a device_map with modules on the GPU and on the CPU is not modelled")
	}
	return places[true]
}

// infers reports whether device_map asks accelerate to place the modules.
func (h *model) infers(l *spec.Load) bool {
	if l.DeviceMap == nil || l.DeviceMap.Kind == spec.Map {
		return false
	}
	x, _ := h.Spec.Errs.Eval(l.DeviceMap, h.Spec.Env).(string)
	return slices.Contains([]string{"auto", "balanced", "balanced_low_0", "sequential"}, x)
}

// place reports whether a device is the GPU.
func (h *model) place(v *spec.Value) bool {
	x := h.Spec.Errs.Eval(v, h.Spec.Env)
	switch x := x.(type) {
	case nil:
		return false
	case int64:
		return true
	case string:
		switch {
		case x == "cpu":
			return false
		case x == "auto", x == "balanced", x == "balanced_low_0", x == "sequential", x == "cuda", strings.HasPrefix(x, "cuda:"):
			return true
		}
	}
	h.fail(v.Span, "device_map is auto, cuda, {\"\": 0}, cpu or null, not %s", spec.Show(x))
	return false
}

// bitsAndBytes reads the quantization_config of a config.json: nil if it is of another
// method.
func bitsAndBytes(raw map[string]any) *spec.BitsAndBytes {
	is := func(key string) bool { b, _ := raw[key].(bool); return b }
	if m, ok := raw["quant_method"].(string); ok && m != "bitsandbytes" || !is("load_in_4bit") && !is("load_in_8bit") {
		return nil
	}
	text := func(key, otherwise string) spec.String {
		if s, ok := raw[key].(string); ok {
			return spec.String{V: s, Set: true}
		}
		return spec.String{V: otherwise}
	}
	q := &spec.BitsAndBytes{
		Load4bit: spec.Boolean{V: is("load_in_4bit")}, Load8bit: spec.Boolean{V: is("load_in_8bit")}, Double: spec.Boolean{V: is("bnb_4bit_use_double_quant")},
		Type: text("bnb_4bit_quant_type", "fp4"), Compute: text("bnb_4bit_compute_dtype", "float32"), Storage: text("bnb_4bit_quant_storage", "uint8"),
		Threshold: spec.Number{V: 6},
	}
	if q.Load4bit.V && q.Type.V != "nf4" && q.Type.V != "fp4" {
		return nil
	}
	if n, ok := raw["llm_int8_threshold"].(json.Number); ok {
		q.Threshold.V, _ = n.Float64()
	}
	if skip, ok := raw["llm_int8_skip_modules"].([]any); ok {
		q.Skips = true
		for _, s := range skip {
			if name, ok := s.(string); ok {
				q.Skip = append(q.Skip, spec.String{V: name})
			}
		}
	}
	return q
}
