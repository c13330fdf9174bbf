// Package estimate answers the question that memplan is for: does this job run
// on this GPU?
//
// It plays the job's steps (package engine), replays their allocations in the
// allocator twice, and turns what it saw into a report. The first replay has no
// limit: its peaks are what the job would like to have. The second has the
// capacity of the device, less the CUDA context and what other processes hold:
// it tells whether a request fails, and whether cached memory had to be given
// back first.
//
// Workspaces of cuDNN's convolutions are part of both, as device.cudnn_workspace
// says; a third replay tells the peaks without them. A workspace that does not fit
// on the device is no OOM: PyTorch tries another plan.
//
// Not part of the figures: what Report.NotModelled lists, and memory that CUDA
// libraries take beside the allocator (NCCL, cuFFT plans, CUDA graphs).
package estimate
