package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// initialize gives the parameters and buffers of a module their first values,
// once it is as it stays: with masks and adapters, under the names of
// Module.state_dict. A module's own come after those of its children, as in
// Module.to. m is the model that it is, nil for a module that the step itself
// calls. What several modules share gets the value of the class that declares it.
func (p *interp) initialize(root *module, m *program.Model) {
	if !p.executes() {
		return
	}
	saved := root.child(program.ModulesToSave)
	for _, ch := range root.registered {
		if ch == saved && m != nil && m.Adapters != nil {
			p.copyValues(saved, root.child(program.OriginalModule))
		}
		p.initialize(ch, m)
	}
	outer := p.push()
	p.layer = root.layer
	for i, c := range root.params {
		p.first(root, c, root.class.Params[i].Name, m)
	}
	for i, c := range root.buffers {
		p.first(root, c, root.class.Buffers[i].Name, m)
	}
	p.pop(outer)
}

// first gives the tensor that a module holds under a name its value, or tells the
// backend of one that has it.
func (p *interp) first(m *module, c *cell, name string, model *program.Model) {
	if c.t == nil {
		return
	}
	of := Initial{Class: c.class, Param: c.decl, Name: program.Join(m.path, name), Shared: c.valued, Model: model != nil, Adapter: c.adapter}
	if len(m.attrs) > 0 && name == "weight_mask" && model != nil && model.Pruned != nil {
		of.Masked, of.Amount = (*m.param("weight_orig")).t, model.Pruned.Amount
	}
	p.must(p.backend.Initialize(c.t, of))
	c.valued = true
}

// copyValues sets the parameters and buffers of a module to those of another of
// its class.
func (p *interp) copyValues(m, from *module) {
	for i, c := range m.params {
		p.copyTo(c.t, from.params[i].t)
	}
	for i, c := range m.buffers {
		p.copyTo(c.t, from.buffers[i].t)
	}
	for i, ch := range m.children {
		p.copyValues(ch, from.children[i])
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

	// Masked is the weight whose smallest elements, Amount of all, a mask of
	// torch.nn.utils.prune leaves out; nil of what is no mask.
	Masked *op.Tensor
	Amount float64
}
