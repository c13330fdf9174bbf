// Package techniques changes models that are elaborated, as sections of the spec ask:
// adapters of PEFT, quantized layers of bitsandbytes, masks of torch.nn.utils.prune,
// checkpoints, frozen parameters, memory of the host, DistributedDataParallel and
// FSDP. A [Job] goes in, of which it reads the spec and changes the program, with
// modules named by patterns of paths; mistakes stay at their places in the spec, among
// them what does not go together. How a model comes to be is not its matter.
package techniques
