// Package estimate answers the question that memplan is for: does this job run
// on this GPU?
//
// It plays the job's steps (package engine), replays their allocations in the
// allocator, and turns what it saw into a report. One replay has the capacity of
// the device, less the CUDA context and what other processes hold: it tells whether
// a request fails, and whether cached memory had to be given back first. Where that
// makes a difference, a second one has no limit: its peaks are what the job would
// like to have.
//
// A Series are jobs that differ in one key. Sizes lie on straight lines, so that two
// that are played tell of the others.
//
// Workspaces of cuDNN's convolutions are part of both, as device.cudnn_workspace
// says; a third replay tells the peaks without them. A workspace that does not fit
// on the device is no OOM: PyTorch tries another plan.
//
// Not part of the figures: what Report.NotModelled lists, and memory that CUDA
// libraries take beside the allocator (NCCL, cuFFT plans, CUDA graphs).
package estimate
