// Package techniques puts other classes in the place of a model's layers, as
// libraries do it: adapters of PEFT, quantized layers of bitsandbytes, masks of
// torch.nn.utils.prune. In goes a model that is elaborated and a section of the spec,
// which names layers by patterns of paths; out comes what the program says of the
// model (program.Place), or mistakes at places of the spec. Which model a section is
// for, and what does not go together, the elaborator decides.
package techniques
