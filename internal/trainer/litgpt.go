package trainer

import "slices"

// LitGPTCommands are the commands of litgpt that train, the default first.
var LitGPTCommands = []string{"finetune_lora", "finetune_full", "pretrain"}

// LitGPTChunk is how many tokens' logits finetune_lora computes at a time
// (lm_head_chunk_size).
const LitGPTChunk = 128

// LitGPT is the table of a command of litgpt 0.5.13: the arguments of setup in
// litgpt/finetune/lora.py, full.py and litgpt/pretrain.py, those of TrainArgs and EvalArgs
// (litgpt/args.py) as train.NAME and eval.NAME.
func LitGPT(command string) *Table { return litgpt[command] }

// LitGPTTables are the tables of all commands.
func LitGPTTables() []*Table {
	var out []*Table
	for _, c := range LitGPTCommands {
		out = append(out, litgpt[c])
	}
	return out
}

var litgpt = map[string]*Table{
	"finetune_lora": {"litgpt finetune_lora", slices.Concat(litgptLoRA, litgptShared(finetuning))},
	"finetune_full": {"litgpt finetune_full", slices.Concat(litgptShared(finetuning), []Argument{
		{Name: "resume", Form: Any, Default: false, Reach: Unmodelled, Why: "the optimizer's state is loaded before the first step"},
	})},
	"pretrain": {"litgpt pretrain", slices.Concat(litgptShared(pretraining), []Argument{
		{Name: "resume", Form: Any, Default: false, Reach: Unmodelled, Why: "the optimizer's state is loaded before the first step"},
		{Name: "model_name", Form: String, Why: "the model is the spec's"},
		{Name: "model_config", Form: Any, Why: "the model is the spec's"},
		{Name: "initial_checkpoint_dir", Form: String, Why: "weights are read into those that are there"},
		{Name: "tokenizer_dir", Form: String, Why: "a folder"},
	})},
}

// litgptLoRA are those of finetune_lora alone.
var litgptLoRA = []Argument{
	{Name: "quantize", Form: String, Choices: []string{"bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.fp4-dq", "bnb.int8-training"}, Reach: Device, Why: "weights of all linear layers in 4 bits; the optimizer is PagedAdamW, and the embedding StableEmbedding, whose gradient nothing clears; bnb.int8-training is refused"},
	{Name: "lora_r", Default: int64(8), Reach: Device, Why: "the rank of adapters"},
	{Name: "lora_alpha", Default: int64(16), Why: "a number"},
	{Name: "lora_dropout", Form: Number, Default: 0.05, Reach: Device, Why: "dropout on the adapters' input"},
	{Name: "lora_query", Form: Bool, Default: true, Reach: Device, Why: "adapters of queries"},
	{Name: "lora_key", Form: Bool, Default: false, Reach: Device, Why: "adapters of keys"},
	{Name: "lora_value", Form: Bool, Default: true, Reach: Device, Why: "adapters of values"},
	{Name: "lora_projection", Form: Bool, Default: false, Reach: Device, Why: "adapters of the output projection of attention"},
	{Name: "lora_mlp", Form: Bool, Default: false, Reach: Device, Why: "adapters of the MLP"},
	{Name: "lora_head", Form: Bool, Default: false, Reach: Device, Why: "adapters of the output head"},
}

// litgptDefaults are defaults in which the commands differ.
type litgptDefaults struct {
	globalBatch, microBatch, interval int64
	maxNorm, tied                     any
	norm, ties                        Reach
}

var (
	finetuning  = litgptDefaults{globalBatch: 16, microBatch: 1, interval: 100}
	pretraining = litgptDefaults{globalBatch: 512, microBatch: 4, interval: 1000, maxNorm: 1.0, tied: false, norm: Device, ties: Unmodelled}
)

// litgptShared are the arguments of all commands.
func litgptShared(d litgptDefaults) []Argument {
	refused := "of pretrain; finetune does not take it"
	normWhy, tiesWhy := refused, refused
	if d.maxNorm != nil {
		normWhy, tiesWhy = "clipping", "the embedding has the weight of the output head"
	}
	return []Argument{
		{Name: "command", Form: String, Default: LitGPTCommands[0], Choices: LitGPTCommands, Reach: Device, Why: "the command of litgpt, which is no argument of it"},
		{Name: "precision", Form: String, Default: "bf16-mixed", Null: true, Choices: []string{"bf16-true", "bf16-mixed", "32-true", "16-true", "16-mixed"}, Reach: Device, Why: "the type of all weights, or autocast; results of the model become float32"},
		{Name: "train.micro_batch_size", Default: d.microBatch, Min: 1, Reach: Device, Why: "samples of one batch"},
		{Name: "train.global_batch_size", Default: d.globalBatch, Min: 1, Reach: Device, Why: "global_batch_size // micro_batch_size batches are accumulated"},
		{Name: "train.max_seq_length", Form: Int, Min: 1, Null: true, Reach: Device, Why: "the largest length of a sample"},
		{Name: "train.max_norm", Form: Number, Default: d.maxNorm, Null: true, Reach: d.norm, Why: normWhy},
		{Name: "train.tie_embeddings", Form: Bool, Default: d.tied, Null: true, Reach: d.ties, Why: tiesWhy},
		{Name: "optimizer", Form: Any, Default: "AdamW", Reach: Device, Why: "a class of torch.optim, or class_path and init_args; pretrain adds fused=True"},
		{Name: "eval.interval", Default: d.interval, Min: 1, Reach: Device, Why: "an evaluation after every n-th step, whose logits are computed at once"},
		{Name: "eval.max_iters", Default: int64(100), Min: 1, Reach: Device, Why: "batches of an evaluation; of more than two the peak is the same"},
		{Name: "eval.max_new_tokens", Form: Int, Null: true, Reach: Unmodelled, Why: "after an evaluation, a sample is generated with a cache of keys and values"},
		{Name: "eval.initial_validation", Form: Bool, Default: false, Why: "an evaluation before training has the tensors of a later one, without the optimizer's state"},
		{Name: "eval.final_validation", Form: Bool, Default: true, Why: "an evaluation like the others"},
		{Name: "eval.evaluate_example", Form: Any, Default: "first", Why: "which sample"},
		{Name: "devices", Form: Any, Default: int64(1), Reach: Device, Why: "several GPUs are refused"},
		{Name: "num_nodes", Default: int64(1), Reach: Device, Why: "several GPUs are refused"},
		{Name: "checkpoint_dir", Form: String, Why: "the model is the spec's"},
		{Name: "out_dir", Form: String, Why: "a folder"},
		{Name: "data", Form: Any, Why: "samples are as long as the model's param seq says"},
		{Name: "train.save_interval", Form: Int, Default: int64(1000), Null: true, Why: "checkpoints are written one tensor at a time"},
		{Name: "train.log_interval", Default: int64(1), Min: 1, Why: "a tensor of one number"},
		{Name: "train.lr_warmup_steps", Form: Int, Default: int64(100), Null: true, Why: "numbers on the CPU"},
		{Name: "train.lr_warmup_fraction", Form: Number, Null: true, Why: "numbers on the CPU"},
		{Name: "train.epochs", Form: Int, Null: true, Why: "a number of epochs"},
		{Name: "train.max_tokens", Form: Int, Null: true, Why: "a number of tokens"},
		{Name: "train.max_steps", Form: Int, Null: true, Why: "a number of steps"},
		{Name: "train.max_time", Form: Number, Null: true, Why: "a number of seconds"},
		{Name: "train.min_lr", Form: Number, Default: 6e-5, Why: "a number"},
		{Name: "log", Form: Any, Why: "of messages"},
		{Name: "logger_name", Form: String, Default: "csv", Why: "of messages"},
		{Name: "seed", Default: int64(1337), Why: "of random numbers"},
		{Name: "access_token", Form: String, Why: "of downloads"},
	}
}
