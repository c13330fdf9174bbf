package trainer

import "slices"

// SFT is the table of trl.SFTConfig (trl/trainer/base_config.py, sft_config.py): the
// arguments of TrainingArguments, some with other defaults, and its own.
var SFT = HF.with("SFTConfig",
	Argument{Name: "learning_rate", Form: Number, Default: 2e-5, Reach: Numbers, Why: "an argument of the optimizer"},
	Argument{Name: "logging_steps", Form: Number, Default: 10.0, Reach: Device, Why: "logs after every n-th step"},
	Argument{Name: "gradient_checkpointing", Form: Bool, Default: true, Reach: Device, Why: "model.gradient_checkpointing_enable()"},
	Argument{Name: "bf16", Form: Bool, Default: true, Null: true, Reach: Device, Why: "autocast of the model's forward to bfloat16; None: unless fp16 is given"},

	// The model.
	Argument{Name: "model_init_kwargs", Form: Mapping, Reach: Unmodelled, Why: "of from_pretrained, if the model is given by its name; the section load has it"},
	Argument{Name: "trust_remote_code", Form: Bool, Default: false, Why: "whose code is run"},
	Argument{Name: "router_aux_loss_coef", Form: Number, Default: 0.001, Reach: Unmodelled, Why: "of experts: the routers' logits are kept for a second loss"},
	Argument{Name: "chat_template_path", Form: String, Why: "text; new tokens make the embeddings larger"},

	// The data.
	Argument{Name: "dataset_text_field", Form: String, Default: "text", Why: "a name"},
	Argument{Name: "dataset_kwargs", Form: Mapping, Why: "how samples are prepared on the CPU"},
	Argument{Name: "dataset_num_proc", Form: Int, Null: true, Why: "processes before training"},
	Argument{Name: "eos_token", Form: String, Why: "text"},
	Argument{Name: "pad_token", Form: String, Why: "text"},
	Argument{Name: "max_length", Form: Int, Default: int64(1024), Min: 1, Null: true, Reach: Device, Why: "the largest length of a sample, and that of a packed one"},
	Argument{Name: "truncation_mode", Form: String, Default: "keep_start", Choices: []string{"keep_start", "keep_end"}, Why: "which tokens are left out"},
	Argument{Name: "shuffle_dataset", Form: Bool, Default: false, Why: "the order of samples"},
	Argument{Name: "packing", Form: Bool, Default: false, Reach: Device, Why: "samples are packed to max_length; but for wrapped, a batch is one sequence, without a mask"},
	Argument{Name: "packing_strategy", Form: String, Default: "bfd", Choices: []string{"bfd", "bfd_split", "bfd-requeue", "wrapped"}, Reach: Device, Why: "wrapped keeps the batch and its mask"},
	Argument{Name: "padding_free", Form: Bool, Default: false, Reach: Device, Why: "a batch is one sequence, without a mask"},
	Argument{Name: "pad_to_multiple_of", Form: Int, Min: 1, Null: true, Reach: Device, Why: "the length of a batch"},
	Argument{Name: "eval_packing", Form: Bool, Null: true, Reach: Unmodelled, Why: "evaluations are planned as packing says"},

	// The loss.
	Argument{Name: "completion_only_loss", Form: Bool, Null: true, Reach: Device, Why: "fewer tokens have a loss (trainer.loss_tokens)"},
	Argument{Name: "assistant_only_loss", Form: Bool, Default: false, Reach: Device, Why: "fewer tokens have a loss (trainer.loss_tokens)"},
	Argument{Name: "loss_type", Form: String, Choices: []string{"nll", "dft", "chunked_nll"}, Reach: Device, Why: "None: chunked_nll, which computes the logits of 256 tokens at a time; nll with use_liger_kernel"},
	Argument{Name: "activation_offloading", Form: Bool, Default: false, Reach: Device, Why: "what autograd saves is copied to the CPU on a stream (offload.activations)"},
)

// with is a table of a class that is derived from t's: rows of the same name take the
// places of t's, others follow.
func (t *Table) with(name string, rows ...Argument) *Table {
	out := &Table{name, slices.Clone(t.Arguments)}
	for _, r := range rows {
		if i := slices.IndexFunc(out.Arguments, func(a Argument) bool { return a.Name == r.Name }); i >= 0 {
			out.Arguments[i] = r
			continue
		}
		out.Arguments = append(out.Arguments, r)
	}
	return out
}
