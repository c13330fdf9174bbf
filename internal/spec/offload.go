package spec

// Offload says what a job keeps in host memory and copies to the GPU when it is
// needed.
type Offload struct {
	At          Span    `yaml:"-"`
	Parameters  Boolean `yaml:"parameters" doc:"parameters lie on the CPU; each module's are copied to the GPU while its forward runs, and again when the backward pass needs them; gradients and the optimizer are on the CPU"`
	Optimizer   Boolean `yaml:"optimizer" doc:"the optimizer steps copies of the parameters on the CPU: gradients are copied there, parameters back"`
	Gradients   Boolean `yaml:"gradients" doc:"with optimizer: each gradient moves to the CPU as soon as it is ready, and leaves the GPU"`
	Activations Boolean `yaml:"activations" doc:"what autograd saves is copied to the CPU and back (torch.autograd.graph.save_on_cpu)"`
	PinMemory   Boolean `yaml:"pin_memory" doc:"the copies are in page-locked memory"`
}

// EMA is an exponential moving average of the weights, a second copy of a model.
type EMA struct {
	At     Span   `yaml:"-"`
	Decay  Number `yaml:"decay" min:"0" max:"1" default:"0.999" doc:"of get_ema_multi_avg_fn"`
	Device String `yaml:"device" enum:"cuda|cpu" default:"cuda" doc:"where the averages lie"`
	Model  String `yaml:"model" doc:"whose weights are averaged, if there are several models"`
}

// EMAName is what the averaged model is called in a step.
const EMAName = "ema"
