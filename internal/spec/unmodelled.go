package spec

import (
	"fmt"
	"slices"
	"strings"
)

// unmodelled is something that jobs have and memplan does not model: a key with the
// tag `later`, or one of its values.
type unmodelled struct {
	key   string // its path, but for the names of models
	value string // "": any
	// worth is what the figures, which are without, say of a job that has it.
	worth string
	also  []string // other names that people give it
}

// WorthOfDeepSpeed is what figures without DeepSpeed's engine, or a part of it, say of a job.
const WorthOfDeepSpeed = "the figures are those of the job without it, and no upper bound: ZeRO divides optimizer state, gradients (stage 2) and parameters (stage 3) among processes, and DeepSpeed has float32 copies and buckets of its own (reduce_bucket_size: 500 million elements); stages 1 to 3 are modelled as deepspeed: {ranks: N, config: FILE}"

// unmodelleds is the table of them.
var unmodelleds = []unmodelled{
	// What compiled graphs keep is the partitioner's choice. Less than eager mode:
	// pytorch/torchdynamo#1479. More: pytorch/pytorch#120381, #122512.
	{compileKey, "", "the figures are those of eager mode and no upper bound: what compiling changes is not known without the code that it writes (compile: {output_code: FILE} replays it), and public pairs of a compiled run and an eager one range from -19 % to +32 %; fused kernels mostly keep less, but checkpointed layers (pytorch/pytorch#120381) and mode reduce-overhead, whose CUDA graphs have memory of their own, may take more",
		[]string{"compile", "torch_compile", "compile_model"}},
	// transformers' flash_attention_2 calls the flash-attn library, whose kernels
	// PyTorch has, too (aten/src/ATen/native/transformers/cuda/flash_attn).
	{"model.attn_implementation", "flash_attention_2", "the figures are those of the model's default attention. If that is sdpa in 16 bits without a mask, it runs the same kernel and saves as much. With padding, sdpa saves a mask and flash_attention_2 saves copies without the padding, so the figures are no upper bound",
		[]string{"attn_implementation", "_attn_implementation", "flash_attention_2", "use_flash_attention_2", "flash_attention", "flash_attn"}},
	{"model.attn_implementation", "eager", "the figures are those of the model's default attention; for a Hugging Face model, write with: {attn: eager}, which is modelled", nil},
	{"model.attn_implementation", "", "the figures are those of the model's default attention, and no upper bound", nil},
	// The division of ZeRO: arXiv:1910.02054; the buckets: deepspeed.ai/docs/config-json.
	{"parallel.deepspeed", "", WorthOfDeepSpeed,
		[]string{"zero_optimization", "zero_stage"}},
	// What is divided by the processes, and what is not: arXiv:2205.05198, section 4.
	{"parallel.tensor", "", "the figures are those of a process with the whole model; with tensor parallelism each process holds less; parallel.tp is modelled", []string{"tensor_parallel", "tp_size"}},
	{"parallel.pipeline", "", "the figures are those of a process with all layers, and no upper bound: a stage has fewer layers, but activations of several microbatches; parallel.pp is modelled", []string{"pipeline_parallel", "pp_size"}},
	{"parallel.sequence", "", "the figures are those of a process with complete sequences; if processes share a sequence, each holds less", []string{"sequence_parallel"}},
	{"parallel.context", "", "the figures are those of a process with complete sequences; if processes share a sequence, each holds less", []string{"context_parallel", "cp_size"}},
}

// worthOf says what the figures are worth without a key that has a value.
func worthOf(key, value string) string {
	if name, ok := strings.CutPrefix(key, "models."); ok { // models.NAME.key
		_, rest, _ := strings.Cut(name, ".")
		key = "model." + rest
	}
	for _, u := range unmodelleds {
		if u.key == key && (u.value == "" || u.value == value) {
			return "; " + u.worth
		}
	}
	return ""
}

// otherName reports a key that stands elsewhere, or has another name, and is known
// though not modelled.
func (e *Errors) otherName(s Span, name string) bool {
	for _, u := range unmodelleds {
		if slices.Contains(u.also, name) {
			example := u.key
			if u.value != "" {
				example += ": " + u.value
			}
			e.add(Diag{Span: s, Msg: fmt.Sprintf("unknown key %q; write %s, which is accepted, but not modelled", name, example), Hint: u.worth})
			return true
		}
	}
	return false
}

const compileKey = "train.compile"

// OutputCode is the file with the code that torch.compile wrote; "" without one.
func (s *Spec) OutputCode() (file string, at Span) {
	v := s.Train.Compile
	if v == nil || v.Kind != Map {
		return "", Span{}
	}
	f := v.Get("output_code")
	if f == nil {
		return "", Span{}
	}
	x, err := f.Eval(s.Env)
	if name, ok := x.(string); ok && err == nil && name != "" {
		return name, f.Span
	}
	s.Errs.Addf(f.Span, "output_code must be the path of a file")
	return "", f.Span
}
