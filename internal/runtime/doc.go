// Package runtime executes what package engine plays: an Executor is a backend
// of the engine over a device. Its memory is divided by allocsim's allocator,
// the very one that predicts, over the device's real segments; what operators
// compute is put in terms of the kernels of package kernel or, where it is rare,
// computed in the machine's own memory.
package runtime
