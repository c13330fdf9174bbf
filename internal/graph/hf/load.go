package hf

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/memplan/memplan/internal/hub"
	"github.com/memplan/memplan/internal/nearest"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// The presets of Hugging Face's model types are named hf/TYPE. Their params are
// the keys of config.json with the library's defaults, and those that say how
// the model is used: task, transformers, attn, mask, use_cache, seq. Some params
// speak to the loader:
//
//	tasks        a list of the tasks that the preset knows
//	base         the block of the model under the head of a task
//	precisions   a list of the precisions that it knows; without it, all
//	keep_in_fp32 a list of the ends of paths of modules that are not quantized
//	positions    how many positions there are weights for, if there are
//	unsupported  null, or what the configuration asks for and is not modelled
//	layer_norms  patterns of paths, of modules that are nn.LayerNorm by inheritance
//	accepts_num_items false: what Trainer counts is not passed to forward, as the model says itself
//	left_out     null, or what is left out of the figures
//	grouped_mm   given by the loader: experts are multiplied by torch._grouped_mm
//	multiprocessors given by the loader: those of the GPU
//	unpacked     names of modules whose weights training takes as they are
//	inference    given by the loader: the job has mode: inference
//	precision    given by the loader: train.precision
//	samples      given by the loader: the type of the images and the sound of a batch
//	weights_dtype given by the loader: the type of the weights in training
//	norm_dtype   given by the loader: the type of the weights of norms in training
//	liger        given by the loader: the kernels of model.liger
//	cut_cross_entropy given by the loader: model.cut_cross_entropy
//	reentrant    given by the loader: use_reentrant of train.checkpoint
//	input_grads  given by the loader: enable_input_require_grads is called with gradient_checkpointing
//	labelled     given by the loader: forward takes labels and gives a loss
//	num_items    given by the loader: forward takes num_items_in_batch
//	loss_chunk   given by the loader: TRL's chunked loss, of so many tokens at a time
//	flattened    given by the loader: the samples of a batch are one sequence
//	several      given by the loader: and masks keep them apart
//	sequences    given by the loader: how many samples of a batch are one sequence
//	token_accuracy given by the loader: Liger's loss counts correct tokens, too
//	loss_tokens  given by the loader: trainer.loss_tokens
//	logits_to_keep given by the loader: how many of the last tokens have logits; 0: all
//	virtual_tokens given by the loader: those of peft
//	prefix_tokens given by the loader: those of prefix tuning
//	prefix_shape layers, heads of keys and values, and their features, if prefix tuning is modelled
//	word_embeddings the path of the embeddings of tokens, if methods of virtual tokens are modelled
//	own_init     the first values are not those of PreTrainedModel, and not modelled
//	neftune      given by the loader: noise is added to the embeddings
const Folder = spec.HFFolder

// Own lists the params of such presets that are theirs to say, not a
// configuration's or the user's.
var Own = []string{"tasks", "base", "precision", "precisions", "samples", "weights_dtype", "keep_in_fp32", "unpacked", "positions", "unsupported", "left_out", "grouped_mm", "multiprocessors", "inference", "norm_dtype", "reentrant", "input_grads", "labelled", "num_items", "layer_norms", "accepts_num_items", "loss_chunk", "loss_tokens", "flattened", "several", "sequences", "token_accuracy", "neftune", "own_init", "liger", "cut_cross_entropy", "logits_to_keep", "virtual_tokens", "word_embeddings", "prefix_tokens", "prefix_shape", "prefixed"}

// Job is what of a job the model of a configuration depends on.
type Job struct {
	Spec *spec.Spec // names the model; mistakes are its own

	Batch     int64
	DType     tensor.DType // of parameters
	Torch     torchver.Version
	SMs       int64 // multiprocessors of the GPU
	Arch      int   // compute capability of the GPU × 10
	Inference bool

	Types       []string                                                                 // that there are presets for
	Preset      func(name string) ([]byte, error)                                        // the text of a preset
	ReadFile    func(name string) ([]byte, error)                                        // nil: there are no files
	Hub         *hub.Hub                                                                 // configurations by name
	Parse       func(name string, text []byte, given map[string]any) (*spec.Spec, error) // reads a preset
	Checkpoints func() bool                                                              // whether train.checkpoint asks for them
	Asked       map[string]any                                                           // the result of Asked, which the model corrects
	Nested      func(*spec.Spec) *spec.Spec                                              // the preset whose params a preset sets, or that itself
}

// Found is what is found on the way.
type Found struct {
	NotModelled   []note.Note
	Warnings      []note.Note
	Fails         []spec.Diag // why the job would fail
	Unread        bool        // the file could not be read
	Type          string      // model_type
	Weights       *Weights    // nil: they are not read from a checkpoint
	Configuration string      // where that of a name comes from; "": the spec says it
	Deviation     float64     // of the first values of weights; 0: modules of torch.nn start as they are
}

// Load reads the configuration that a model names and the preset of its model type.
func (j *Job) Load(m *spec.Model, f *Found) *spec.Spec {
	errs, called := j.Spec.Errs, Named(m)
	switch {
	case m.HF.Set && (m.Preset.Set || len(m.Layers) > 0):
		errs.Failf(m.HF.At, "hf excludes preset and layers")
	case len(m.Layers) > 0:
		errs.Failf(m.Preset.At, "preset and layers exclude each other")
	}
	text := j.config(m, f)
	c, err := ParseConfig(text)
	if err != nil {
		errs.Failf(called.At, "%s: %v", called.V, err)
	}
	f.Type = c.Type
	name := Folder + c.Type
	preset, err := j.Preset(name)
	if err != nil || slices.Contains(shared, name) || name == promptsFile || name == prefixFile {
		j.unknown(m, c)
	}
	h := &model{Job: j, Found: f, m: m, c: c, with: map[string]spec.Span{}}
	h.readWeights()
	given := h.params()
	h.virtual(name, preset, given)
	h.types(name, preset, given)
	s := j.read(m, name, preset, given)
	h.check(s)
	outer := s
	s = j.Nested(s)
	h.deviation(s, given)
	h.around(s)
	h.share(s, outer)
	h.prompts(s)
	h.activations(s)
	h.weights()
	if h.Weights != nil {
		h.Weights.Kept = names(s, "keep_in_fp32")
		if !h.Inference {
			h.Weights.Unpacked = names(s, "unpacked")
		}
	}
	return s
}

// failing are model types that transformers 5.12 itself fails with, and why.
var failing = map[string]string{
	"dbrx": "the router of DbrxFFN takes ffn_hidden_size features, and its input has d_model of them",
}

// failingQuantized are those that it fails to train in weights of 4 or 8 bits.
var failingQuantized = map[string]string{
	"gemma3n": "Gemma3nTextAltUp clamps weights in place, which are integers then",
}

// unknown stops at a model type without a preset.
func (j *Job) unknown(m *spec.Model, c *Config) {
	if why, fails := failingQuantized[c.Type]; fails && !j.Inference && m.Load != nil && m.Load.Quantize != nil && (m.Load.Quantize.Load4bit.V || m.Load.Quantize.Load8bit.V) {
		j.Spec.Errs.Failf(m.Load.Quantize.At, "%s: transformers 5.12 fails to train model_type %q in weights of 4 or 8 bits, as %s; use a model of another type", Named(m).V, c.Type, why)
	}
	if why, fails := failing[c.Type]; fails {
		j.Spec.Errs.Failf(Named(m).At, "%s: transformers 5.12 fails with model_type %q, as %s; use a model of another type", Named(m).V, c.Type, why)
	}
	mean := ""
	if n := nearest.To(c.Type, j.Types); n != "" {
		mean = fmt.Sprintf("; did you mean %q?", n)
	}
	j.Spec.Errs.Failf(Named(m).At, "%s: model_type %q is not known%s; known are %s", Named(m).V, c.Type, mean, list(j.Types))
}

// deviation is that of PreTrainedModel._init_weights (modeling_utils.py).
func (h *model) deviation(s *spec.Spec, given map[string]any) {
	if own, _ := s.Env.Lookup("own_init"); own == true {
		return
	}
	own, _ := s.Env.Lookup("initializer_range")
	h.Deviation = 0.02
	for _, v := range []any{given["initializer_range"], given["init_std"], own} {
		if d, is := v.(float64); is && d > 0 {
			h.Deviation = d
			return
		}
	}
}

func (j *Job) read(m *spec.Model, name string, text []byte, given map[string]any) *spec.Spec {
	s, err := j.Parse(name, text, given)
	if err != nil {
		j.Spec.Errs.Failf(Named(m).At, "preset %s: %v", name, err)
	}
	return s
}

// model is a model of a config.json while it is loaded.
type model struct {
	*Job
	*Found
	m    *spec.Model
	c    *Config
	with map[string]spec.Span // where with gives params
}

func (h *model) fail(s spec.Span, format string, args ...any) {
	h.Spec.Errs.Failf(s, format, args...)
}

// at is the place of a param: with's, or that of the config.json.
func (h *model) at(param string) spec.Span {
	if s, ok := h.with[param]; ok {
		return s
	}
	return Named(h.m).At
}

// params collects the values for the params of a preset: those of the
// configuration, the task, and with's, which go before.
func (h *model) params() map[string]any {
	m := h.m
	given := map[string]any{}
	for k, v := range h.c.Values {
		given[k] = v
	}
	switch {
	case m.Task.Set:
		given["task"] = m.Task.V
	case h.c.Task != "":
		given["task"] = h.c.Task
	case h.c.Architecture != "":
		given["task"] = nil
	}
	if w := m.With; w != nil {
		if w.Kind != spec.Map && w.Kind != spec.Null {
			h.fail(w.Span, "with is a mapping from params to values, not %s", w.Describe())
		}
		for _, p := range w.Pairs {
			given[p.Key.Str] = h.Spec.Errs.Eval(p.Value, h.Spec.Env)
			h.with[p.Key.Str] = p.Key.Span
		}
	}
	if f, ok := given["transformers"].(float64); ok { // 5.12 without quotes
		given["transformers"] = strconv.FormatFloat(f, 'f', 2, 64)
	}
	switch {
	case h.Checkpoints():
		given[GradientCheckpointing] = true
	case h.Inference:
		given[GradientCheckpointing] = false
	}
	for _, own := range Own {
		delete(given, own)
	}
	h.correct()
	maps.Copy(given, h.Asked)
	h.cachesInEvaluations(given)
	n, _ := given["seq"].(int64)
	if n = h.Spec.Trainer.Length(n); n > 0 {
		given["seq"] = n
	}
	if t := h.Spec.Trainer; t.OwnLoss() {
		switch given["mask"] {
		case nil:
			given["mask"] = "ones"
		case "none":
			h.fail(h.at("mask"), "mask: none with trainer: %s is not modelled, as its batches have a mask; mask: ones and mask: padded are", t.Key())
		}
	}
	given["precision"] = h.precision()
	given["samples"] = h.samples().String()
	given["weights_dtype"], given["norm_dtype"] = h.DType.String(), h.DType.String()
	if h.Weights != nil {
		given["weights_dtype"] = h.Weights.Trained("").String()
		given["norm_dtype"] = h.Weights.Trained("norm").String()
	}
	if m.Attn.Set {
		if s, twice := h.with["attn"]; twice {
			h.fail(s, "attn and attn_implementation are the same; give one of them")
		}
		given["attn"], h.with["attn"] = m.Attn.V, m.Attn.At
	}
	if names := h.liger(); names != nil {
		given["liger"] = names
	}
	h.Asked["cut_cross_entropy"] = h.cutCrossEntropy(given)
	given["cut_cross_entropy"] = h.Asked["cut_cross_entropy"]
	if l := h.m.Load; l != nil && l.Attn.Set && h.with["attn"] == (spec.Span{}) {
		given["attn"] = l.Attn.V
		h.with["attn"] = l.Attn.At
	}
	given["reentrant"] = h.Spec.Train.Checkpoint != nil && h.Spec.Train.Checkpoint.Reentrant.V
	if h.c.Around != "" {
		given["base"] = Around
		if part := languages[h.c.Around].part; part != "" {
			given["part"] = part
		}
	}
	given["grouped_mm"] = h.Torch.Has(torchver.GroupedExperts) && h.Arch >= 80 || h.Torch.Has(torchver.GroupedExpertsHopper) && h.Arch >= 90
	given["multiprocessors"] = h.SMs
	given["inference"] = h.Inference
	return given
}

// correct corrects what the trainer asks of a model that is around a language model:
// Trainer sets use_cache of the model's own configuration, not of text_config.
func (h *model) correct() {
	if h.c.Around == "" || !h.Spec.Trainer.OfTransformers() {
		return
	}
	l := languages[h.c.Around]
	if l.uncounted {
		h.Asked["num_items"] = false
	}
	if !l.caches && !h.Spec.Trainer.OfTRL() {
		delete(h.Asked, "use_cache")
	}
}

// inputGrads reports whether enable_input_require_grads is called: by gradient_checkpointing_enable,
// which LLaMA-Factory replaces, or by PEFT, unless weights are quantized.
func (h *model) inputGrads() bool {
	c, l := h.Spec.Train.Checkpoint, h.m.Load
	return c == nil || !c.Trained || h.Spec.PEFT != nil && (l == nil || l.Quantize == nil)
}

// cachesInEvaluations says what evaluations keep that training with checkpoints does not:
// GradientCheckpointingLayer leaves out the cache in training alone.
func (h *model) cachesInEvaluations(given map[string]any) {
	t := h.Spec.Trainer
	if !t.OfTransformers() || !t.Evaluates() || !h.Checkpoints() || given["use_cache"] == false {
		return
	}
	if given["use_cache"] == true || h.c.Around != "" {
		key := "trainer." + t.Key() + ".eval_strategy"
		h.NotModelled = append(h.NotModelled, note.Asked.New("%s: the keys and values that evaluations keep with use_cache; planned without them, as in training with gradient_checkpointing", key).Of(key))
	}
}

// weights says what becomes of the types of the weights in the files.
func (h *model) weights() {
	c, planned := h.c, h.DType
	if h.Weights != nil {
		planned = h.Weights.DType
	}
	if c.Quantized != "" && h.Spec.Quantize == nil && (h.Weights == nil || h.Weights.Quantize == nil) {
		h.NotModelled = append(h.NotModelled, note.Asked.New("the quantization of %s (%s): its weights are planned in %v", Named(h.m).V, c.Quantized, planned))
	}
	if h.Weights != nil {
		return
	}
	if d, err := tensor.ParseDType(c.DType); err == nil && d != h.DType {
		h.Warnings = append(h.Warnings, note.LoadedType.New(
			"%s says dtype %s, in which from_pretrained of transformers 5 loads weights; they are planned in %v, as train.precision %s says", Named(h.m).V,
			c.DType, h.DType, h.Spec.Train.Precision.V).Of("train.precision"))
	}
}

// chunkSize is TRL's _CHUNKED_LM_HEAD_CHUNK_SIZE.
const chunkSize = 256

// Asked are the params that a job gives every model of transformers that it trains, and
// a preset that such a model sets the params of: what its trainer passes to forward.
func Asked(t *spec.Trainer) map[string]any {
	a := t.Args()
	if !t.OfTransformers() || a.Table == nil {
		return map[string]any{}
	}
	out := map[string]any{"num_items": !t.Accepts.Set || t.Accepts.V, "labelled": a.Number("label_smoothing_factor") == 0, "neftune": a.Value("neftune_noise_alpha")}
	if a.Table.Find("use_cache", a.Release) != nil {
		out["use_cache"] = a.Bool("use_cache")
	}
	if t.Flattened() {
		out["flattened"], out["mask"] = true, "none"
		out["several"], out["sequences"] = !t.OneSample.V, t.Samples()
	}
	if t.OwnLoss() {
		out["use_cache"], out["labelled"], out["num_items"] = false, false, false
	}
	if t.GRPO != nil {
		out["logits_to_keep"] = a.Int("max_completion_length") + 1 // the last belongs to no token
	}
	if t.SFT != nil {
		out["use_cache"] = false
		switch a.Text("loss_type") {
		case "chunked_nll":
			out["loss_chunk"] = int64(chunkSize)
		case "dft":
			out["labelled"] = false
		}
		out["token_accuracy"] = a.Bool("use_liger_kernel")
		if n := t.LossTokens; n.Set {
			out["loss_tokens"] = n.V
		}
	}
	return out
}
