// Package plan is memplan for programs: schedulers, operators and recommenders that
// ask what GPU memory a PyTorch training job needs. The command line is made of it.
//
// A Job is a spec (YAML, see docs/language.md) with what is changed in it. Estimate plays
// its training step, replays the allocations in a model of PyTorch's caching
// allocator, and returns the Report that memplan estimate --format json prints; an
// Estimate then tells the largest batch, a curve, and changes that make the job fit.
// Replay runs a Trace, of a job or recorded, through the allocator alone.
//
// # Errors
//
// The mistakes of a spec are reported at once, with places: Mistakes lists them. Running
// out of memory on the GPU is a result and no error. A job that meets a limit of
// Limits ends with a *LimitError, one whose context ends with the context's cause.
//
// # What is stable
//
// The names of this package, and those of the fields of types that it shares with
// the rest of memplan, whose JSON is versioned: Report ("memplan_report"), Change,
// Point, Simulation ("memplan_simulation"). Within a version fields are added, and
// none is taken away or changes its meaning. Figures become better: they are as
// exact as docs/accuracy.md says, and no promise. Texts for people (reasons, warnings,
// messages) change at any time, as do packages below internal. Before version 1.0 of
// the module what is stable may change in a minor version, and CHANGELOG.md says so.
package plan
