package exporttorch

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// awayPython stands for OffloadActivations of TRL and torchtune.
//
//go:embed python/away.py
var awayPython string

// helpers prints the functions that techniques need.
func (s *script) helpers() {
	o := s.job.Offload
	sharing := false
	if e := s.job.Eval; e != nil {
		sharing = slices.ContainsFunc(s.job.Models, func(m *program.Model) bool { return e.IsApart(m.Name) })
	}
	if sharing {
		s.b.WriteString(s.sharing())
	}
	types := s.hasOwnTypes()
	if types {
		s.b.WriteString(typed)
	}
	if o.Optimizer {
		s.b.WriteString(strings.ReplaceAll(bringBack, "PIN", pin(o)))
	}
	if o.Gradients {
		s.b.WriteString(strings.ReplaceAll(moveGradient, "PIN", pin(o)))
	}
	if o.Parameters {
		s.b.WriteString(onload)
		if s.job.Inference == "" {
			s.b.WriteString(strings.ReplaceAll(packing, "SAVED", saved(o)))
		}
	}
	if o.Away != nil {
		s.b.WriteString(awayPython)
	}
	if o.Optimizer || o.Gradients || o.Parameters || o.Away != nil || sharing || types {
		s.line("")
		s.line("")
	}
}

// pin is what moves a tensor on the CPU to page-locked memory.
func pin(o program.Offload) string {
	if o.Pinned {
		return ".pin_memory()"
	}
	return ""
}

// saved is what is kept of a tensor that is no parameter.
func saved(o program.Offload) string {
	switch {
	case o.Activations && o.Pinned:
		return "torch.empty(t.size(), dtype=t.dtype, pin_memory=True).copy_(t.detach())"
	case o.Activations:
		return "t.detach().cpu()"
	}
	return "t.detach()"
}

// bringBack is a step of an optimizer whose parameters are copies on the CPU.
const bringBack = `

def bring_back(optimizer, params, copies, take):
    """Steps an optimizer of copies on the CPU; take: with the gradients on the GPU."""
    if take:
        for p, c in zip(params, copies):
            c.grad = None
            c.grad = None if p.grad is None else p.grad.cpu()PIN
    optimizer.step()
    with torch.no_grad():
        for p, c in zip(params, copies):
            p.copy_(c)
`

// moveGradient moves a gradient to the CPU as soon as it is ready.
const moveGradient = `

def move_gradient(copy):
    def hook(p):
        grad = p.grad.cpu()PIN
        if copy.grad is None:
            copy.grad = grad
        else:
            copy.grad += grad
        p.grad = None
    return hook
`

// onload are the hooks that copy parameters to the GPU while a module runs.
const onload = `

resident = {}  # where the copies on the GPU are, and of which parameters


def units(module):
    """The modules that own parameters; one of torch.nn uses those of its child, too."""
    if isinstance(module, nn.MultiheadAttention):
        yield module, list(module.modules())
        return
    if any(p is not None for p in module._parameters.values()):
        yield module, [module]
    for child in module.children():
        yield from units(child)


def offload(model):
    """Leaves the parameters on the CPU and copies those of a module to the GPU while it runs."""
    for m in model.modules():
        for name, b in m._buffers.items():
            m._buffers[name] = None if b is None else b.to(device)
    for module, owners in units(model):
        own = [(m, name, p) for m in owners for name, p in m._parameters.items() if p is not None]

        def before(module, args, own=own):
            for m, name, p in own:
                del m._parameters[name]
                setattr(m, name, p.to(device))
                resident[getattr(m, name).untyped_storage().data_ptr()] = p

        def after(module, args, output, own=own):
            for m, name, p in own:
                del resident[getattr(m, name).untyped_storage().data_ptr()]
                delattr(m, name)
                m._parameters[name] = p

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
`

// packing are the hooks of saved tensors: of a copy of a parameter, autograd
// keeps the parameter.
const packing = `

def pack(t):
    p = resident.get(t.untyped_storage().data_ptr())
    if p is not None:
        return p, t.size(), t.stride(), t.storage_offset()
    return t.device, SAVED


def unpack(packed):
    if len(packed) == 2:
        where, t = packed
        return t.to(where)
    p, *view = packed
    return p.detach().to(device).as_strided(*view)
`

// contexts are those in which a step computes.
func (s *script) contexts() string {
	var all []string
	o := s.job.Offload
	if s.job.Autocast {
		all = append(all, s.autocast())
	}
	switch {
	case o.Parameters && s.job.Inference == "":
		all = append(all, "torch.autograd.graph.saved_tensors_hooks(pack, unpack)")
	case o.Activations && o.Away == nil:
		all = append(all, fmt.Sprintf("torch.autograd.graph.save_on_cpu(pin_memory=%s)", program.Literal(o.Pinned)))
	}
	return strings.Join(all, ", ")
}

// offloadParameters prints what keeps parameters on the CPU.
func (s *script) offloadParameters() {
	if s.job.Offload.Parameters {
		for _, m := range s.job.Models {
			s.printf("offload(%s)", s.modelName(m.Name))
		}
	}
}

// offloadActivations prints the hooks of saved tensors that copy on a stream.
func (s *script) offloadActivations() {
	a := s.job.Offload.Away
	if a == nil {
		return
	}
	var models, kept []string
	for _, m := range s.job.Models {
		models = append(models, s.modelName(m.Name))
		kept = append(kept, s.patterns(a.Except, m))
	}
	s.printf("%s = OffloadActivations([%s], %s, %s, %d, %d, %s)", s.away(), strings.Join(models, ", "), program.Literal(a.Pinned), program.Literal(a.Streams), a.Min, a.Stash, strings.Join(kept, " + "))
}

// away is the variable of those hooks.
func (s *script) away() string { return s.name(nameKey{global, "away", "offloaded"}) }

// The variables of an offloaded optimizer: its parameters on the GPU, and the
// copies that it steps.
func (s *script) onDevice(optimizer string) string {
	return s.name(nameKey{global, "params", optimizer + "_params"})
}

func (s *script) copies(optimizer string) string {
	return s.name(nameKey{global, "copies", optimizer + "_copies"})
}

// onCPU prints the copies that an offloaded optimizer steps and returns what it
// is given.
func (s *script) onCPU(o *program.Optimizer, params string) string {
	if !s.job.Offload.Optimizer {
		return params
	}
	if !strings.HasPrefix(params, "[") {
		params = "list(" + params + ")"
	}
	s.printf("%s = %s", s.onDevice(o.Name), params)
	s.printf("%s = [p.detach().cpu()%s.requires_grad_() for p in %s]", s.copies(o.Name), pin(s.job.Offload), s.onDevice(o.Name))
	return s.copies(o.Name)
}

// moveGradients registers the hooks that move gradients.
func (s *script) moveGradients(o *program.Optimizer) {
	if !s.job.Offload.Gradients {
		return
	}
	s.printf("for p, c in zip(%s, %s):", s.onDevice(o.Name), s.copies(o.Name))
	s.indent++
	s.line("p.register_post_accumulate_grad_hook(move_gradient(c))")
	s.indent--
}

// averaged prints the second copy of a model.
func (s *script) averaged() {
	e := s.job.EMA
	if e == nil {
		return
	}
	where := ""
	if e.CPU {
		where = `, device="cpu"`
	}
	s.printf("%s = torch.optim.swa_utils.AveragedModel(%s%s, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(%s))", s.modelName(e.Name), s.modelName(e.Model), where, program.Literal(e.Decay))
}

// optimizerStep prints the step of an optimizer.
func (p *printer) optimizerStep(name, closure string) {
	if o := p.job.Offload; o.Optimizer {
		p.printf("bring_back(%s, %s, %s, %s)", p.optimizerName(name), p.onDevice(name), p.copies(name), program.Literal(!o.Gradients))
	} else {
		p.printf("%s.step(%s)", p.optimizerName(name), closure)
	}
}

// gradients are the parameters whose gradients are clipped.
func (p *printer) gradients(o *program.Optimizer) string {
	if p.job.Offload.Gradients {
		return p.copies(o.Name)
	}
	return p.parameters(o)
}

// zeroOnDevice clears the gradients on the GPU if the optimizer has those on the
// CPU.
func (p *printer) zeroOnDevice(s *program.Stmt) {
	if o := p.job.Optimizers[s.Optimizer]; p.job.Offload.Optimizer {
		for _, m := range o.Models {
			p.printf("%s.zero_grad(set_to_none=%s)", p.modelName(m), program.Literal(s.SetToNone))
		}
	}
}
