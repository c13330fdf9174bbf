package engine

import (
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// label names the operation at work, which is none of a row.
func (p *Player) label(name string) { p.op = p.names.op(name) }

// newLayer numbers a layer of a class; layerOf says of which class it goes by.
func (p *Player) newLayer(path string, c *program.Class) int32 {
	n := p.names.layer(path)
	p.names.class(n, c)
	return n
}

func (p *Player) layerOf(layer int32, c *program.Class) { p.names.class(layer, c) }

// layers are the classes of the trace's layers; nil for what is no module.
func (p *Player) layers() []*program.Class {
	for len(p.names.classes) < len(p.tr.Layers) {
		p.names.class(int32(len(p.names.classes)), nil)
	}
	return p.names.classes
}

// ran lists the rows that ran, and those whose derivatives did, sorted by name.
func (p *Player) ran() (rows, derived []*op.Op) { return p.names.ran() }

// warn notes what PyTorch would warn of, once.
func (p *Player) warn(n note.Note) { p.warnings = note.Add(p.warnings, n) }

// alive is what lives on the device and, of what is counted there, on the host.
func (p *Player) alive() (device, host tensor.Bytes) { return p.live, p.hostLive }

// searched is for how many convolutions cuDNN has searched a plan.
func (p *Player) searched() int { return len(p.plans) }

// graph is what the graph keeps for the backward pass: live blocks that are neither
// parameters nor inputs, in all and by the layer that made them.
func (p *Player) graph() (tensor.Bytes, []tensor.Bytes) { return p.saved.sum, p.saved.byLayer }

// hostTrace is what the job keeps in the machine's memory.
func (p *Player) hostTrace() *HostTrace { return &p.host }

// searches are the workspaces of cuDNN's convolutions.
func (p *Player) searches() Workspaces { return p.workspaces }

// ownKernels are the kernels that ran of whose scratch a rule of their own decides.
func (p *Player) ownKernels() []KernelCall { return p.kernels }

// warned is what PyTorch would have warned of.
func (p *Player) warned() []note.Note { return p.warnings }

// multiplied are the products of the forward passes since resetProducts.
func (p *Player) multiplied() []Product { return p.products.list }
func (p *Player) resetProducts()        { p.products.reset() }

// reseed notes that the state of the device's random numbers was set.
func (p *Player) reseed() { p.rnnReset = true }

// inputs is room for the inputs of an operator.
func (p *Player) inputs(n int) []*op.Tensor { return p.tensors.take(n)[:0] }
