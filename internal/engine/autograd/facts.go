package autograd

import (
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// Label names the operation at work, which is none of a row.
func (p *Player) Label(name string) { p.Op = p.names.op(name) }

// NewLayer numbers a layer of a class; layerOf says of which class it goes by.
func (p *Player) NewLayer(path string, c *program.Class) int32 {
	n := p.names.layer(path)
	p.names.class(n, c)
	return n
}

func (p *Player) LayerOf(layer int32, c *program.Class) { p.names.class(layer, c) }

// Layers are the classes of the trace's layers; nil for what is no module.
func (p *Player) Layers() []*program.Class {
	for len(p.names.classes) < len(p.tr.Layers) {
		p.names.class(int32(len(p.names.classes)), nil)
	}
	return p.names.classes
}

// Ran lists the rows that ran, and those whose derivatives did, sorted by name.
func (p *Player) Ran() (rows, derived []*op.Op) { return p.names.ran() }

// Warn notes what PyTorch would warn of, once.
func (p *Player) Warn(n note.Note) { p.warnings = note.Add(p.warnings, n) }

// Alive is what lives on the device and, of what is counted there, on the host.
func (p *Player) Alive() (device, host tensor.Bytes) { return p.live, p.hostLive }

// Searched is for how many convolutions cuDNN has searched a plan.
func (p *Player) Searched() int { return len(p.plans) }

// Graph is what the graph keeps for the backward pass: live blocks that are neither
// parameters nor inputs, in all and by the layer that made them.
func (p *Player) Graph() (tensor.Bytes, []tensor.Bytes) { return p.saved.sum, p.saved.byLayer }

// HostTrace is what the job keeps in the machine's memory.
func (p *Player) HostTrace() *HostTrace { return &p.host }

// Searches are the workspaces of cuDNN's convolutions.
func (p *Player) Searches() Workspaces { return p.workspaces }

// OwnKernels are the kernels that ran of whose scratch a rule of their own decides.
func (p *Player) OwnKernels() []KernelCall { return p.kernels }

// Warned is what PyTorch would have warned of.
func (p *Player) Warned() []note.Note { return p.warnings }

// Multiplied are the products of the forward passes since resetProducts.
func (p *Player) Multiplied() []Product { return p.products.list }
func (p *Player) ResetProducts()        { p.products.reset() }

// Reseed notes that the state of the device's random numbers was set.
func (p *Player) Reseed() { p.rnnReset = true }

// Inputs is room for the inputs of an operator.
func (p *Player) Inputs(n int) []*op.Tensor { return p.tensors.Take(n)[:0] }
