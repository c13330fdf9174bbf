// Package allocsim is PyTorch's native CUDA caching allocator, as an exact
// model: the same requests in the same order get the same blocks, segments,
// statistics and out-of-memory errors, event for event, as from the
// CUDACachingAllocator of PyTorch 2.6. It knows nothing of models or training;
// it replays traces, recorded ones as well as predicted ones, and a runtime can
// take real memory from it.
//
// # Units
//
// All sizes are in bytes (tensor.Bytes). Three of them describe a program's
// memory and are never mixed up:
//
//   - requested: what the program asked for;
//   - allocated: the blocks it was given, which are larger by rounding;
//   - reserved: what the allocator took from the device, which is larger by
//     what is cached. nvidia-smi shows this one, plus the CUDA context.
//
// # Algorithm
//
// The allocator takes segments from the device and cuts them into blocks. A
// freed block is not given back but cached, joined with cached neighbours, and
// serves later requests of the same stream. Since work on one stream is done in
// order, a block may be reused as soon as the host has freed it; only uses on
// other streams (Tensor.record_stream) must be waited for.
//
//  1. A request is rounded up to a multiple of 512 bytes (rounding.go). Up to 1
//     MiB it is small, otherwise large: two pools per stream, which share no
//     segment.
//  2. The best fit is taken: the smallest cached block that is large enough, the
//     lowest of several. If it is larger, the upper part is split off and stays
//     cached: in the small pool always, in the large one if more than 1 MiB is
//     left. With max_split_size there are oversize blocks, which are never split
//     and serve only requests of about their size.
//  3. Otherwise a segment is taken from the device: 2 MiB in the small pool; in
//     the large one 20 MiB for requests below 10 MiB, else the request rounded up
//     to 2 MiB. With expandable segments, memory is mapped where address space
//     was reserved in advance, next to what is there (expandable.go).
//  4. Above the garbage collection threshold, segments that have been cached for
//     long are freed before that.
//  5. If the device has no memory left (or a memory fraction forbids more),
//     oversize segments are released, as many as the request takes; then, if
//     that is not enough, all pending blocks are waited for and the whole cache
//     is released; and the device is asked again each time. If that fails, the
//     request does (OOMError, in PyTorch's words).
//
// Where addresses matter (the lowest of several blocks, neighbours), so does the
// order in which the device hands them out. VirtualDriver is the norm for that:
// first fit, lowest address first, in whole pages of 2 MiB.
//
// # State
//
// Blocks live in one slice and name each other by index; the cached blocks of
// each stream and pool are in an ordered set (freeset.go). Once these have
// grown, an event allocates nothing on the Go heap, and a Replayer keeps them
// from one trace to the next: searching for a batch size replays hundreds. A
// core replays 14 to 24 million events of training a second
// (go test -bench Recorded). Allocator.Dump and Allocator.Snapshot show the
// state; with the build tag invariants it is checked after every operation.
//
// # What is not modelled
//
//   - Private pools: CUDA graphs and torch.cuda.MemPool.
//   - The backend cudaMallocAsync, and PYTORCH_NO_CUDA_MEMORY_CACHING.
//   - Changing the options while the program runs.
//   - Several devices: each has an allocator of its own.
//   - The lines about other processes in an out-of-memory message.
//   - The order in which blocks that wait on different streams are freed. In
//     PyTorch it is that of a hash table, here that of the streams' numbers. Only
//     the peaks and sums of inactive_split depend on it.
//   - Releases after 2.6, except for their options: large_segment_size_mb and
//     per_process_memory_fraction are modelled from their source, not checked
//     against a recording.
package allocsim
