package accuracy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/trace"
)

// TrainerRecording is one recorded run of transformers' Trainer, or of a trainer that
// is made of it; see testdata/truth-trainer/README.md.
type TrainerRecording struct {
	Name   string                  `json:"name"`
	Config TrainerConfig           `json:"config"`
	Setup  map[string]RecordedMark `json:"setup"`
	Steps  []RecordedStep          `json:"steps"`
	Events trace.Recorded          `json:"events"`
}

// TrainerConfig says what was run.
type TrainerConfig struct {
	Text string `json:"spec"` // the job, where no other field says it

	Task      string                     `json:"task"`
	Model     string                     `json:"model"` // the class
	Attention string                     `json:"attn"`
	HF        map[string]json.RawMessage `json:"hf"` // the model's config.json
	Batch     int64                      `json:"batch"`
	Seq       int64                      `json:"seq"`
	Target    int64                      `json:"tgt_seq"`
	Mask      string                     `json:"mask"`
	Images    int64                      `json:"images"` // of a sample, in a model of text and images
	DType     string                     `json:"dtype"`  // of the weights
	Args      map[string]any             `json:"args"`   // TrainingArguments that were given
	Metrics   bool                       `json:"compute_metrics"`
	EvalRows  int64                      `json:"eval_rows"`
	Accepts   *bool                      `json:"model_accepts_loss_kwargs"`
	Arch      string                     `json:"arch"`
	Load      json.RawMessage            `json:"load"`          // how from_pretrained read the weights
	KBit      json.RawMessage            `json:"kbit"`          // prepare_model_for_kbit_training
	LoRA      json.RawMessage            `json:"lora"`          // peft.LoraConfig
	OFT       json.RawMessage            `json:"oft"`           // peft.OFTConfig
	BOFT      json.RawMessage            `json:"boft"`          // peft.BOFTConfig
	AdaLoRA   json.RawMessage            `json:"adalora"`       // peft.AdaLoraConfig
	Prompt    json.RawMessage            `json:"prompt_tuning"` // peft.PromptTuningConfig
	PTuning   json.RawMessage            `json:"p_tuning"`      // peft.PromptEncoderConfig
	Prefix    json.RawMessage            `json:"prefix_tuning"` // peft.PrefixTuningConfig
	Kernels   []string                   `json:"lora_kernels"`  // Axolotl's: mlp, qkv, o
	TRL       json.RawMessage            `json:"trl"`           // additions of SFTConfig, or of the configuration of Trainer
	Trainer   string                     `json:"trainer"`       // of TRL: dpo; "": sft
	Init      map[string]any             `json:"init"`          // model_init_kwargs of DPOConfig
	Empties   bool                       `json:"empty_cache"`   // after each training_step
	CCE       bool                       `json:"cut_cross_entropy"`

	Ranks      int64   `json:"ranks"`       // processes, of jobs with DeepSpeed
	Packed     bool    `json:"packed"`      // position_ids were found to be those of several samples
	SeqLengths []int64 `json:"seq_lengths"` // of the samples of a packed row; nil: one
	LossTokens *int64  `json:"loss_tokens"` // of a batch, where the run was answered with it
}

// LoadTrainer reads the recordings of a folder, sorted by name.
func LoadTrainer(dir string) ([]*TrainerRecording, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json.gz"))
	if err != nil {
		return nil, err
	}
	sort.Strings(files)
	var out []*TrainerRecording
	for _, f := range files {
		r := new(TrainerRecording)
		if err := readJSON(f, r); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// given reports whether a part of the configuration asks for something.
func given(raw json.RawMessage) bool {
	return len(raw) > 0 && string(raw) != "null" && string(raw) != "false"
}

// Spec writes the recorded run as a spec, with the configuration in config.json.
func (r *TrainerRecording) Spec() string {
	c := r.Config
	if c.Text != "" {
		return c.Text
	}
	with := []string{"attn: " + c.Attention}
	if c.Seq > 0 { // images have none
		with = append(with, fmt.Sprintf("seq: %d", c.Seq))
	}
	if c.Mask != "" {
		with = append(with, "mask: "+c.Mask)
	}
	if c.Target > 0 {
		with = append(with, fmt.Sprintf("target_seq: %d", c.Target))
	}
	if c.Images > 0 {
		with = append(with, fmt.Sprintf("images: %d", c.Images))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: %s\nmodel: {hf: config.json, task: %s, with: {%s}%s}\n", r.Name, hfTasks[c.Task], strings.Join(with, ", "), c.load()+c.loss())
	for _, m := range []struct {
		name   string
		config json.RawMessage
	}{{"lora", c.LoRA}, {"oft", c.OFT}, {"boft", c.BOFT}, {"adalora", c.AdaLoRA}, {"prompt_tuning", c.Prompt}, {"p_tuning", c.PTuning}, {"prefix_tuning", c.Prefix}} {
		if !given(m.config) {
			continue
		}
		fmt.Fprintf(&b, "peft: {%s: %s", m.name, m.config)
		if given(c.KBit) {
			fmt.Fprintf(&b, ", prepare_for_kbit_training: %s", c.KBit)
		}
		if len(c.Kernels) > 0 {
			fmt.Fprintf(&b, ", kernels: [%s]", strings.Join(c.Kernels, ", "))
		}
		b.WriteString("}\n")
	}
	args := []string{fmt.Sprintf("per_device_train_batch_size: %d", c.Batch)}
	for _, name := range slices.Sorted(maps.Keys(c.Args)) {
		if name == "deepspeed" {
			fmt.Fprintf(&b, "deepspeed: {ranks: %d, config: %s}\n", c.Ranks, jsonOf(c.Args[name].(map[string]any)))
			continue
		}
		text, _ := json.Marshal(c.Args[name]) // which is what was read
		args = append(args, name+": "+string(text))
	}
	trainer := "hf"
	if given(c.TRL) {
		trainer = cmp.Or(c.Trainer, "sft")
		args = append(args, c.sft()...)
	}
	if c.refers() {
		args = append(args, "model_init_kwargs: "+jsonOf(c.Init))
	}
	fmt.Fprintf(&b, "trainer:\n  %s: {%s}\n", trainer, strings.Join(args, ", "))
	if given(c.TRL) && trainer != "grpo" {
		var tokens int64 // none, where the run was not answered
		if c.LossTokens != nil {
			tokens = *c.LossTokens
		}
		fmt.Fprintf(&b, "  loss_tokens: %d\n", tokens)
		switch {
		case trainer != "sft":
		case !c.Packed:
			b.WriteString("  one_sample: true\n")
		case strings.HasPrefix(c.Attention, "flash"):
			fmt.Fprintf(&b, "  sequences: %d\n", c.Batch*max(1, int64(len(c.SeqLengths))))
		}
	}
	if c.Mask != "padded" { // bool(tensor) was True then, whatever was asked
		b.WriteString("  nan_loss: true\n")
	}
	if c.Empties {
		b.WriteString("  empty_cache: true\n")
	}
	if c.Metrics {
		b.WriteString("  compute_metrics: true\n")
	}
	if c.Accepts != nil {
		fmt.Fprintf(&b, "  model_accepts_loss_kwargs: %v\n", *c.Accepts)
	}
	if c.EvalRows > 0 {
		fmt.Fprintf(&b, "  eval_dataset: {samples: %d}\n", c.EvalRows)
	}
	return b.String()
}

// load is how the recording read the weights: from a checkpoint in the type of the
// weights, to the GPU.
func (c *TrainerConfig) load() string {
	switch {
	case !given(c.Load) && c.DType == "":
		return ""
	case !given(c.Load): // model.to(dtype) on the CPU
		return ", dtype: " + c.DType
	}
	kw := struct {
		BNB     json.RawMessage `json:"bnb"`
		Map     string          `json:"map"`
		Convert json.RawMessage `json:"convert"` // types of parameters after it
	}{Map: `{"": 0}`}
	_ = json.Unmarshal(c.Load, &kw) // which is what was read
	dtype := c.DType
	if dtype == "" {
		dtype = "float32"
	}
	quantized := ""
	if given(kw.BNB) {
		quantized = fmt.Sprintf(", quantization_config: %s", kw.BNB)
	}
	if given(kw.Convert) {
		quantized += fmt.Sprintf(", convert: %s", kw.Convert)
	}
	return fmt.Sprintf(", load: {dtype: %s, device_map: %s%s}", dtype, kw.Map, quantized)
}

// loss is what computes the loss in the place of the model's own.
func (c *TrainerConfig) loss() string {
	if c.CCE {
		return ", cut_cross_entropy: true"
	}
	return ""
}

// jsonOf writes a mapping; none is an empty one.
func jsonOf(m map[string]any) string {
	if m == nil {
		return "{}"
	}
	text, _ := json.Marshal(m) // which is what was read
	return string(text)
}

// sft are the arguments of SFTConfig.
func (c *TrainerConfig) sft() []string {
	more := map[string]any{}
	if c.Trainer != "grpo" {
		more["max_length"] = c.Seq
	}
	if err := json.Unmarshal(c.TRL, &more); err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(more)) {
		text, _ := json.Marshal(more[name]) // which is what was read
		out = append(out, name+": "+string(text))
	}
	return out
}

// Env is the device of the recording.
func (r *TrainerRecording) Env() op.Env { return ArchEnv(r.Config.Arch) }

// Compare holds the prediction against the recording.
func (r *TrainerRecording) Compare() *Case {
	family, _, _ := strings.Cut(r.Name, "_")
	c := &Case{Name: r.Name, Family: family, Arch: r.Config.Arch}
	text, err := json.Marshal(r.Config.HF)
	if err != nil {
		c.Difference = err.Error()
		return c
	}
	c.files = func(string) ([]byte, error) { return text, nil }
	c.trainer(r.Spec(), r)
	return c
}

// refers reports whether DPOTrainer read a second model, its reference.
func (c *TrainerConfig) refers() bool {
	if given(c.LoRA) {
		return false
	}
	return c.Trainer == "dpo" || c.Trainer == "grpo" && c.beta() != 0
}

// beta is that of GRPOConfig.
func (c *TrainerConfig) beta() float64 {
	var trl struct {
		Beta float64 `json:"beta"`
	}
	_ = json.Unmarshal(c.TRL, &trl) // which is what was read
	return trl.Beta
}

// reads is how many models the threads of from_pretrained read, each tensor when one of
// them is free; what is quantized is read by one.
func (c *TrainerConfig) reads() (n int) {
	var kw struct {
		BNB json.RawMessage `json:"bnb"`
	}
	if given(c.Load) && json.Unmarshal(c.Load, &kw) == nil && !given(kw.BNB) {
		n++
	}
	if device, given := c.Init["device_map"]; c.refers() && (!given || device != nil) {
		n++
	}
	return n
}

// runs are the first n times that several allocations follow a free: what from_pretrained
// has read behind the block of the size of all weights, in the order of its threads.
func runs[E any](events []E, alloc func(E) bool, n int) (out [][]E) {
	free := func(e E) bool { return !alloc(e) }
	for len(out) < n {
		i := slices.IndexFunc(events, free)
		if i < 0 {
			break
		}
		events = events[i+1:]
		end := slices.IndexFunc(events, free)
		if end < 0 {
			end = len(events)
		}
		if end > 1 {
			out = append(out, events[:end])
		}
	}
	return out
}

// trainer compares the events as one list: in the recording a step begins when its
// batch is on the GPU, and what is logged and evaluated between two steps belongs to
// the second. Steps are cut where the recording cuts them.
func (c *Case) trainer(text string, r *TrainerRecording) {
	p, err := predict(c.Name, text, r.Env(), len(r.Steps), c.files)
	if err != nil {
		c.Difference = "no prediction: " + err.Error()
		return
	}
	all, events := whole(r.Events, len(r.Steps)), cut(p.events, ends(r.Events, len(r.Steps)))
	whole := joined(events)
	reads := r.Config.reads()
	recorded := runs(all["setup"], func(e trace.RecordedEvent) bool { return e.ID > 0 }, reads)
	predicted := runs(whole, func(e trace.Event) bool { return e.Kind == trace.Alloc }, reads)
	for i := range min(len(recorded), len(predicted)) {
		n := min(len(recorded[i]), len(predicted[i]))
		slices.SortStableFunc(recorded[i][:n], func(a, b trace.RecordedEvent) int { return cmp.Compare(a.Bytes, b.Bytes) })
		slices.SortStableFunc(predicted[i][:n], func(a, b trace.Event) int { return cmp.Compare(a.Bytes, b.Bytes) })
	}
	c.Difference = trace.Difference(all, whole, false, true)
	if c.Equal = c.Difference == ""; c.Equal {
		c.Rows, c.Derived = p.rows, p.derived
	}
	res, err := allocsim.Replay(events, allocsim.ReplayOptions{Config: p.conf})
	if err != nil {
		c.Equal, c.Difference = false, "the prediction cannot be replayed: "+err.Error()
		return
	}
	marks := []RecordedStep{{PeakAllocated: r.Setup["data_optimizer"].PeakAllocated, PeakReserved: r.Setup["data_optimizer"].PeakReserved}}
	for i, s := range append(marks, r.Steps...) {
		sp := StepPeaks{RecordedAllocated: s.PeakAllocated, RecordedReserved: s.PeakReserved}
		for _, q := range res.Steps {
			if q.Step == i {
				sp.Allocated, sp.Reserved = q.PeakAllocated.Allocated, q.PeakReserved.Reserved
			}
		}
		c.Steps = append(c.Steps, sp)
	}
}
