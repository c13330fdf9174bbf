// Package runtime executes what package engine plays: an Executor is a backend
// of the engine over a device. Its memory is divided by allocsim's allocator,
// the very one that predicts, over the device's real segments. What operators
// compute they say themselves (op.Eval), in terms of the kernels of package kernel
// or, where it is rare, of arrays in host memory.
package runtime
