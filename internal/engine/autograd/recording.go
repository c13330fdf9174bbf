package autograd

import (
	"maps"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// recording is what leaves a player: the trace, and what was noted of it beside.
type recording struct {
	tr   *trace.Trace
	host HostTrace

	live, hostLive tensor.Bytes // in blocks on the device and on the host

	names  names
	nextID int32          // of a block on the device
	births []*storage     // of blocks, by number from 1, since Watch was called
	sizes  []tensor.Bytes // room of RoundBetween

	Step     int32
	saved    account     // of the graph
	products products    // of the step's forward passes
	warnings []note.Note // what PyTorch would warn of, each once
}

func (r *recording) init() {
	r.tr = &trace.Trace{Categories: make([]trace.Category, 1)}
	r.host.Categories, r.host.Pinned = make([]trace.Category, 1), make([]bool, 1)
	r.names.init(r.tr)
}

// Trace returns what was recorded so far.
func (r *recording) Trace() *trace.Trace { return r.tr }

// NewLayer numbers a layer, a module of a class.
func (r *recording) NewLayer(path string, c *program.Class) int32 {
	n := r.names.layer(path)
	r.names.class(n, c)
	return n
}

// LayerOf says as a module of which class a layer goes.
func (r *recording) LayerOf(layer int32, c *program.Class) { r.names.class(layer, c) }

// Layers are the classes of the trace's layers; nil for what is no module.
func (r *recording) Layers() []*program.Class {
	for len(r.names.classes) < len(r.tr.Layers) {
		r.names.class(int32(len(r.names.classes)), nil)
	}
	return r.names.classes
}

// Ran lists the operators that ran, and those whose derivatives did, sorted by name.
func (r *recording) Ran() (rows, derived []*op.Op) { return r.names.ran() }

// Warn notes what PyTorch would warn of, once.
func (r *recording) Warn(n note.Note) { r.warnings = note.Add(r.warnings, n) }

// Alive is what lives on the device and, of what is counted there, on the host.
func (r *recording) Alive() (device, host tensor.Bytes) { return r.live, r.hostLive }

// Saved is what the graph keeps for the backward pass: live blocks that are neither
// parameters nor inputs, in all and by the layer that made them.
func (r *recording) Saved() (tensor.Bytes, []tensor.Bytes) { return r.saved.sum, r.saved.byLayer }

// HostTrace is what the job keeps in host memory.
func (r *recording) HostTrace() *HostTrace { return &r.host }

// Warned is what PyTorch would have warned of.
func (r *recording) Warned() []note.Note { return r.warnings }

// Multiplied are the products of the forward passes since ResetProducts.
func (r *recording) Multiplied() []Product { return r.products.list }

// ResetProducts forgets them.
func (r *recording) ResetProducts() { r.products.reset() }

// names interns operator and layer names for the trace.
type names struct {
	tr      *trace.Trace
	ops     map[string]int32
	layers  map[string]int32
	classes []*program.Class // by layer; nil of none
	rows    map[*op.Op]int32
	nodes   map[*op.Op]int32

	inner   map[*op.Op]bool // composites that ran as parts of others
	derived map[*op.Op]bool // whose derivatives ran
}

func (n *names) init(tr *trace.Trace) {
	n.tr = tr
	n.ops, n.layers = map[string]int32{}, map[string]int32{}
	n.rows, n.nodes = map[*op.Op]int32{}, map[*op.Op]int32{}
	n.inner, n.derived = map[*op.Op]bool{}, map[*op.Op]bool{}
	n.op("")
	n.layer("")
}

func intern(m map[string]int32, list *[]string, s string) int32 {
	i, ok := m[s]
	if !ok {
		i = int32(len(*list))
		m[s] = i
		*list = append(*list, s)
	}
	return i
}

func (n *names) op(s string) int32    { return intern(n.ops, &n.tr.Ops, s) }
func (n *names) layer(s string) int32 { return intern(n.layers, &n.tr.Layers, s) }

// class notes of which class a layer is.
func (n *names) class(layer int32, c *program.Class) {
	for len(n.classes) <= int(layer) {
		n.classes = append(n.classes, nil)
	}
	n.classes[layer] = c
}

func (n *names) row(r *op.Op) int32 {
	i, ok := n.rows[r]
	if !ok {
		i = n.op(r.Name)
		n.rows[r] = i
	}
	return i
}

func (n *names) node(r *op.Op) int32 {
	i, ok := n.nodes[r]
	if !ok {
		name := r.Node
		if name == "" {
			name = r.Name + " backward"
		}
		i = n.op(name)
		n.nodes[r] = i
	}
	return i
}

// ran lists the rows that ran, and those whose derivatives did, sorted by name.
func (n *names) ran() (rows, derived []*op.Op) {
	byName := func(a, b *op.Op) int { return strings.Compare(a.Name, b.Name) }
	rows = slices.AppendSeq(slices.Collect(maps.Keys(n.rows)), maps.Keys(n.inner))
	slices.SortFunc(rows, byName)
	return slices.Compact(rows), slices.SortedFunc(maps.Keys(n.derived), byName)
}
