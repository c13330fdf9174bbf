// Package cudnn says what cuDNN does with the convolutions and recurrent layers that
// PyTorch hands it: which it takes, in which layout, and what workspaces, reserves and
// states it asks for. They are pure functions of sizes, types and the architecture; it
// knows nothing of operators, of tensors' memory or of who allocates.
//
// What cuDNN documents nowhere says where its figures come from.
package cudnn
