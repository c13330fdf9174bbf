package program

import "github.com/memplan/memplan/internal/tensor"

// Megatron is what Megatron-core's DistributedDataParallel around the model and the optimizer of its parameters
// are configured with (megatron/core/distributed/distributed_data_parallel_config.py and
// megatron/core/optimizer/optimizer_config.py). A process that is planned is the first.
type Megatron struct {
	World        int64        // processes, one on each GPU
	Ranks        int64        // data-parallel processes
	ExpertRanks  int64        // of experts that are spread over GPUs
	Experts      Patterns     // the parameters of such experts, which have a buffer and an optimizer of their own
	Grads        tensor.DType // of the buffer of gradients
	Accumulation int64        // microbatches of a step
	Distributed  bool         // the distributed optimizer
	TE           bool         // layers are Transformer Engine's, which keep a workspace
	Grouped      bool         // experts are one of those, which keeps a workspace for each of four streams
	Fused        bool         // kernels of Transformer Engine or Apex take all gradients at once
	Checks       bool         // whether gradients are NaN
	Scaler       bool         // the loss is scaled: DynamicGradScaler
	Shared       Patterns     // parameters whose gradients tensor-parallel processes add up
	Bucket       int64        // elements of a bucket of gradients; 0: there is one
	Padded       int64        // a bucket of the distributed optimizer has a multiple of as many elements, and of 128
	PerToken     bool         // gradients are divided by the tokens of a step: calculate_per_token_loss

	Pipeline *MegatronPipeline // this process has stages of a pipeline; nil: it has the whole model
	Tied     Patterns          // the table of tokens, if two stages have it
}
