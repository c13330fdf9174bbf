package spec

import "reflect"

// Offload says what a job keeps in host memory and copies to the GPU when it is
// needed.
type Offload struct {
	At         Span    `yaml:"-"`
	Parameters Boolean `yaml:"parameters" doc:"parameters lie on the CPU; each module's are copied to the GPU while its forward runs, and again when the backward pass needs them; gradients and the optimizer are on the CPU"`
	Optimizer  Boolean `yaml:"optimizer" doc:"the optimizer steps copies of the parameters on the CPU: gradients are copied there, parameters back"`
	Gradients  Boolean `yaml:"gradients" doc:"with optimizer: each gradient moves to the CPU as soon as it is ready, and leaves the GPU"`
	PinMemory  Boolean `yaml:"pin_memory" doc:"the copies are in page-locked memory"`
	// Activations is true or what they are copied by.
	Activations *Activations `yaml:"activations" doc:"what autograd saves is copied to the CPU and back: true is torch.autograd.graph.save_on_cpu, a mapping OffloadActivations of TRL and torchtune"`
}

// Activations are the arguments of OffloadActivations, or true.
type Activations struct {
	At     Span     `yaml:"-"`
	Saved  Boolean  `yaml:"-"` // true: save_on_cpu
	Own    bool     `yaml:"-"` // a mapping
	Head   bool     `yaml:"-"` // the output head is excepted, as get_act_offloading_ctx_manager finds it
	Pin    Boolean  `yaml:"use_pin_memory" default:"true" doc:"the copies are in page-locked memory"`
	Stream Boolean  `yaml:"use_streams" default:"true" doc:"the copies are made on a stream of their own; a tensor that left stays on the GPU until later ones have left, too"`
	Min    Integer  `yaml:"min_offload_size" min:"0" default:"1024" doc:"bytes of the smallest tensor that is copied"`
	Stash  Integer  `yaml:"max_fwd_stash_size" min:"1" max:"1000000" default:"5" doc:"how many tensors autograd saves until one that left is freed on the GPU"`
	Except []String `yaml:"except" doc:"modules whose saved tensors stay on the GPU: paths or patterns; TRL and torchtune name the output head"`
}

// unmarshal reads activations: true or false, or a mapping.
func (a *Activations) unmarshal(d *decoder, v *Value) {
	if v.Kind == Map {
		d.section(v, (*activationsSection)(a), "activations")
		a.Own = true
		return
	}
	d.field(reflect.ValueOf(&a.Saved).Elem(), "", &Value{Str: "activations", Span: v.Span}, v)
	a.At = v.Span
}

// activationsSection is Activations without its own forms.
type activationsSection Activations

// EMA is an exponential moving average of the weights, a second copy of a model.
type EMA struct {
	At     Span   `yaml:"-"`
	Decay  Number `yaml:"decay" min:"0" max:"1" default:"0.999" doc:"of get_ema_multi_avg_fn"`
	Device String `yaml:"device" enum:"cuda|cpu" default:"cuda" doc:"where the averages lie"`
	Model  String `yaml:"model" doc:"whose weights are averaged, if there are several models"`
}

// EMAName is what the averaged model is called in a step.
const EMAName = "ema"
