package python

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// Initialize gives the parameters and buffers of a module their first values,
// once it is as it stays: with masks and adapters, under the names of
// Module.state_dict. A module's own come after those of its children, as in
// Module.to. m is the model that it is, nil for a module that the step itself
// calls. What several modules share gets the value of the class that declares it.
func (p *Interp) Initialize(root *Module, m *program.Model) {
	if !p.Executes() {
		return
	}
	saved := root.child(program.ModulesToSave)
	for _, ch := range root.Registered {
		if ch == saved && m != nil && m.Adapters != nil {
			p.copyValues(saved, root.child(program.OriginalModule))
		}
		p.Initialize(ch, m)
	}
	outer := p.Push()
	p.Layer = root.Layer
	for i, c := range root.Params {
		p.first(root, c, root.Class.Params[i].Name, m)
	}
	for i, c := range root.Buffers {
		p.first(root, c, root.Class.Buffers[i].Name, m)
	}
	p.Pop(outer)
}

// first gives the tensor that a module holds under a name its value, or tells the
// backend of one that has it.
func (p *Interp) first(m *Module, c *Cell, name string, model *program.Model) {
	if c.T == nil {
		return
	}
	of := Initial{Class: c.class, Param: c.Decl, Name: program.Join(m.path, name), Shared: c.valued, Model: model != nil, Adapter: c.adapter}
	if model != nil && !c.adapter {
		of.Deviation = model.Deviation
	}
	if len(m.attrs) > 0 && name == "weight_mask" && model != nil && model.Pruned != nil {
		of.Masked, of.Amount = (*m.param("weight_orig")).T, model.Pruned.Amount
	}
	p.Must(p.backend.Initialize(c.T, of))
	c.valued = true
}

// copyValues sets the parameters and buffers of a module to those of another of
// its class.
func (p *Interp) copyValues(m, from *Module) {
	for i, c := range m.Params {
		p.CopyTo(c.T, from.Params[i].T)
	}
	for i, c := range m.Buffers {
		p.CopyTo(c.T, from.Buffers[i].T)
	}
	for i, ch := range m.Children {
		p.copyValues(ch, from.Children[i])
	}
}

// Initial says which parameter or buffer is to be initialized.
type Initial struct {
	Class   *program.Class // that declares it
	Param   *program.Param
	Name    string // of this module's, in Module.state_dict
	Shared  bool   // another module held it before, and it has its value
	Model   bool   // it is a model's, not of a module that the step itself calls
	Adapter bool   // it is a weight of a LoRA adapter

	Deviation float64 // of the model; 0: modules start as in torch.nn

	// Masked is the weight whose smallest elements, Amount of all, a mask of
	// torch.nn.utils.prune leaves out; nil of what is no mask.
	Masked *op.Tensor
	Amount float64
}
