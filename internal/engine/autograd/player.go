package autograd

import (
	"maps"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/engine/slab"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Player plays programs: it holds every tensor, the autograd graph and the
// trace of what was allocated.
type Player struct {
	Scope
	backend Backend
	Meter   *limit.Meter

	tr   *trace.Trace
	host HostTrace

	live, hostLive tensor.Bytes // in blocks on the device and on the host

	names  names
	nextID int32

	Step        int32
	seq         [2]uint64 // of each thread
	saved       account   // of the graph
	products    products  // of the step's forward passes
	casts       castCache
	guards      []*guard      // of operators under way while a checkpoint is recomputed, the innermost last
	Recomputing int           // checkpoints
	ready       readyQueue    // of the thread that runs backward passes
	tasks       int           // how many there were
	warnings    []note.Note   // what PyTorch would warn of, each once
	blas        [2]*op.Tensor // cuBLAS workspace of each thread's handle
	workspaces  Workspaces    // of cuDNN's convolutions
	plans       map[plan]bool // that were searched for
	kernels     []KernelCall  // that ran on the device
	rnnState    *op.Tensor    // random numbers of cuDNN's RNN
	rnnReset    bool          // the device's random numbers were set since

	objects  slab.Pool[Object]
	storages slab.Pool[storage]
	nodes    slab.Pool[Node]
	backs    slab.Pool[op.Back]
	calls    slab.Arena[op.Call]
	edges    slab.Arena[edge]
	metas    slab.Arena[op.Meta]
	savings  slab.Arena[saved]
	tensors  slab.Arena[*op.Tensor]
	flags    slab.Arena[bool]
}

// New returns a player for one device.
func New(env op.Env, b Backend) *Player {
	p := &Player{Scope: Scope{env: env}, backend: b, tr: &trace.Trace{Categories: make([]trace.Category, 1)}}
	p.host.Categories, p.host.Pinned = make([]trace.Category, 1), make([]bool, 1)
	p.names.init(p.tr)
	return p
}

// Trace returns what was recorded so far.
func (p *Player) Trace() *trace.Trace { return p.tr }

// Fail implements op.Exec. Play recovers the error.
func (p *Player) Fail(format string, args ...any) {
	p.failAt(p.At, format, args...)
}

// BlasHandle implements op.Exec. The first cuBLAS call of a thread allocates
// its handle's workspace, which stays for the life of the process; newer
// versions take one for each call.
func (p *Player) BlasHandle() {
	if p.blas[p.thread] != nil || p.env.FakeTensors {
		return
	}
	w := p.New(tensor.Contiguous(tensor.D(p.env.CublasWorkspace())), tensor.Uint8)
	p.Mark(w, trace.Workspace)
	if p.env.Torch.CublasWorkspaceTransient() {
		p.Drop(w)
		return
	}
	p.blas[p.thread] = w
}

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
