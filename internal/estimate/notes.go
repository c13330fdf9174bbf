package estimate

// How warnings begin that tell more than that something is odd; who reads a
// report by program knows them by it.
const (
	NoteAsked       = "asked for and not modelled yet: "
	NoteGrowing     = "memory keeps growing: "
	NoteHostGrowing = "host memory keeps growing: "
	NoteGPU         = "the GPU is not as memplan knows it: "
	NoteUnsettled   = "not all steps that differ were simulated: "
	NoteUncertain   = "the headroom is less than what is uncertain"
	NoteWorkspaces  = "with the workspaces that cuDNN's convolutions are expected to take"
)
