package record

import (
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Played is a recording that was played.
type Played struct {
	Trace          *trace.Trace
	Doubts         []Doubtful                        // operators of which memplan does not know what they allocate, by name
	Classes        []string                          // of the modules, by layer
	Steps          int                               // that were recorded
	AttentionPlans tensor.Bytes                      // the largest workspace that a plan of cuDNN's attention may take
	Kernels        []autograd.KernelCall             // of whose scratch a rule of their own decides
	Convs          autograd.Workspaces               // of cuDNN's convolutions
	Rows, Derived  []*op.Op                          // operators that ran, and those whose derivatives did
	Parameters     int64                             // elements
	Trainable      int64                             // of them
	Precision      string                            // as specs write it: of most parameters, and of autocast
	Tensors        int                               // that hold parameters
	updates        marks                             // the events before which steps of optimizers begin
	owners         map[int32]int32                   // by block: the layer that it belongs to
	Totals         [trace.NumCategories]tensor.Bytes // the most that lived at one time
}

// Doubtful is an operator that was counted by its results alone.
type Doubtful struct {
	Op    string // full name
	Why   string
	Calls int
	Bytes tensor.Bytes // the largest sum of its results that lived at one time
}

// player plays the lines of a recording.
type player struct {
	r       *Recording
	p       *autograd.Player
	held    []*op.Tensor           // by storage: what keeps its block
	at      map[int64]*op.Tensor   // of the allocator's own history: what lives, by address
	params  map[int]bool           // storages of parameters
	owner   map[int]int32          // by storage: the layer whose parameter it belongs to
	host    map[int]bool           // storages that the recorded release has on the device and the played one has not
	along   map[int][]*op.Tensor   // by storage: what lives as long, which was not recorded
	blocks  map[int]int32          // by storage: its block
	types   map[tensor.DType]int64 // elements of parameters by type
	cast    string                 // the type of autocast
	known   []bool                 // storages that were made by something that was played
	modules []string
	classes map[string]string
	doubts  map[string]*Doubtful
	names   []string
	out     Played
}

// Play plays a recording as if it ran in an environment.
func Play(m *limit.Meter, r *Recording, env op.Env) (played *Played, err error) {
	defer func() {
		e := recover()
		if wrong, ok := e.(*program.Error); ok { // sizes whose sum is beyond all memory
			played, err = nil, wrong
			return
		}
		limit.Caught(e, &err)
	}()
	env.GradMode, env.Training = false, true
	p := &player{
		r: r, p: autograd.New(env, nil), held: make([]*op.Tensor, len(r.Storages)), known: make([]bool, len(r.Storages)), doubts: map[string]*Doubtful{}, params: map[int]bool{}, at: map[int64]*op.Tensor{}, owner: map[int]int32{}, blocks: map[int]int32{}, host: map[int]bool{}, along: map[int][]*op.Tensor{}, types: map[tensor.DType]int64{}, classes: map[string]string{},
	}
	p.out.owners = map[int32]int32{}
	p.p.Counts(m)
	for i := range r.Lines {
		m.Work(5)
		p.line(&r.Lines[i])
	}
	p.out.Trace, p.out.Kernels, p.out.Convs = p.p.Trace(), p.p.OwnKernels(), p.p.Searches()
	p.out.AttentionPlans = p.p.AttentionPlans()
	p.out.Rows, p.out.Derived = p.p.Ran()
	for _, path := range p.out.Trace.Layers {
		p.out.Classes = append(p.out.Classes, p.classes[path])
	}
	for n, layer := range p.owner {
		if id := p.blocks[n]; id > 0 {
			p.out.owners[id] = layer
		}
	}
	p.out.categorize()
	p.out.Precision = p.precision()
	for _, n := range p.names {
		p.out.Doubts = append(p.out.Doubts, *p.doubts[n])
	}
	return &p.out, nil
}

func (p *player) line(l *Line) {
	switch l.Kind {
	case Made:
		if s := p.r.Storages[l.N]; s.Origin != "op" {
			p.make(l.N)
		}
	case Op:
		p.op(l)
	case Freed:
		if t := p.held[l.N]; t != nil {
			p.p.Label("")
			p.held[l.N] = nil
			p.p.EmptyStorage(t) // whatever a row that failed still holds of it
			p.p.Drop(t)
			p.p.Drop(p.along[l.N]...)
			delete(p.along, l.N)
		}
	case Enter:
		p.begin()
		p.modules = append(p.modules, l.Name)
		p.classes[l.Name] = l.Class
	case Leave:
		if n := len(p.modules); n > 0 {
			p.modules = p.modules[:n-1]
		}
	case Phase:
		p.phase(l)
	case Mark:
		p.mark(l)
	case Alloc:
		p.p.Enter("", false, int16(l.Stream))
		p.p.Step, p.p.Phase = max(p.p.Step, 1), trace.Other // which nothing tells
		p.at[l.Address] = p.p.NewIn(l.Bytes, tensor.Contiguous(tensor.D(int64(l.Bytes))), tensor.Uint8)
	case Dealloc:
		if t := p.at[l.Address]; t != nil {
			delete(p.at, l.Address)
			p.p.Drop(t)
		}
	}
}

// phases are the phases of a trace by their names in recordings.
var phases = map[string]trace.Phase{
	"setup": trace.Setup, "input": trace.Input, "forward": trace.Forward, "backward": trace.Backward, "clip": trace.Clip, "optimizer": trace.Optimizer,
	"zero_grad": trace.ZeroGrad, "eval": trace.Eval, "other": trace.Other, "step": trace.Other,
}

func (p *player) phase(l *Line) {
	if ph, ok := phases[l.Name]; ok {
		p.p.Phase = ph
	}
	if l.Name == "optimizer" {
		p.out.updates = append(p.out.updates, len(p.p.Trace().Events))
	}
	switch {
	case l.Name == "step": // the end of one
		p.out.Steps = max(p.out.Steps, l.N)
		p.p.Step = int32(p.out.Steps) + 1
	case p.p.Phase == trace.Backward || p.p.Phase == trace.Optimizer:
		p.begin()
	}
}

// begin ends the setup, if that has not ended.
func (p *player) begin() {
	if p.p.Step == 0 {
		p.p.Step = 1
	}
	if p.p.Phase == trace.Setup || p.p.Phase == trace.Other || p.p.Phase == trace.ZeroGrad {
		p.p.Phase = trace.Forward
	}
}

func (p *player) mark(l *Line) {
	on := len(l.Args) == 0 || l.Args[0] == true
	switch l.Name {
	case "empty_cache":
		p.p.EmptyCache()
	case "deterministic":
		p.p.Env().Deterministic = on
	case "cudnn.benchmark":
		p.p.Env().CudnnBenchmark = on
	}
}

// make gives a storage that no operator made its block.
func (p *player) make(n int) {
	s := p.r.Storages[n]
	p.known[n] = true
	if s.CUDA && p.held[n] == nil {
		p.held[n] = p.p.NewIn(s.Bytes, tensor.Contiguous(tensor.D(int64(s.Bytes))), tensor.Uint8)
	}
}

// op plays one operator.
func (p *player) op(l *Line) {
	c := p.r.bind(l)
	layer := ""
	if n := len(p.modules); n > 0 {
		layer = p.modules[n-1]
	}
	p.p.Enter(layer, l.Back, int16(l.Stream))
	if layer == "" {
		p.p.Layer = p.near(c)
	}
	for _, v := range c.tensors {
		for _, t := range stored(v) {
			if !p.known[t.Storage] { // of which no line says that it was made
				p.make(t.Storage)
			}
		}
	}
	fresh := p.fresh(l)
	on := p.onDevice(c) || len(fresh) > 0
	if !on {
		return
	}
	if l.Cast != "" {
		p.cast = l.Cast
	}
	p.p.Label(c.schema.Name)
	defer p.roles(c, fresh)
	why := p.play(c, fresh)
	if why == "" {
		return
	}
	made := tensor.Bytes(0)
	for _, n := range fresh {
		if p.held[n] == nil {
			p.make(n)
			made += p.r.Storages[n].Bytes
		}
	}
	if why != plainly {
		p.doubt(c, why, made)
	}
}

// plainly says of an operator that its results are all that it allocates.
const plainly = "plainly"

func (p *player) doubt(c *call, why string, made tensor.Bytes) {
	name := c.schema.Full()
	d := p.doubts[name]
	if d == nil {
		d = &Doubtful{Op: name, Why: why}
		p.doubts[name] = d
		p.names = append(p.names, name)
	}
	d.Calls++
	d.Bytes = max(d.Bytes, made)
}

// fresh are the storages on the device that an operator makes, in order.
func (p *player) fresh(l *Line) []int {
	var out []int
	seen := func(n int) bool {
		for _, k := range out {
			if k == n {
				return true
			}
		}
		return false
	}
	for _, t := range stored(l.Outs) {
		if p.known[t.Storage] || seen(t.Storage) || !p.r.Storages[t.Storage].CUDA {
			continue
		}
		out = append(out, t.Storage)
	}
	for _, n := range out {
		p.known[n] = true
	}
	return out
}

// onDevice reports whether an operator works on the device.
func (p *player) onDevice(c *call) bool {
	for _, v := range c.tensors {
		for _, t := range stored(v) {
			if p.r.Storages[t.Storage].CUDA {
				return true
			}
		}
	}
	return false
}

// play plays an operator by its row; it returns why it could not, or plainly.
func (p *player) play(c *call, fresh []int) string {
	s := c.schema
	if len(fresh) == 0 && !s.Writes() && viewing(c) && (len(c.Outs) > 0 || aten.DispatchOf(s.Name, s.Overload) == nil) {
		return plainly
	}
	if s.Space != "aten" {
		return "an operator outside of PyTorch"
	}
	if s.Name == "copy_" || s.Name == "_to_copy" {
		p.copy(c, fresh)
		return plainly
	}
	overload := s.Overload
	if s.Name == "index" {
		if overload = c.indexing(p.r); overload == "" {
			return "an index that no row knows"
		}
	}
	d := aten.DispatchOf(s.Name, overload)
	if d == nil {
		if aten.Plain(s.Name) {
			return plainly
		}
		return "no row"
	}
	why := ""
	if err := p.p.Try(func() { why = p.row(c, d, fresh) }); err != nil {
		why = err.Error()
	}
	if why != "" && aten.Plain(s.Name) && dispatchedByName(s) {
		return plainly
	}
	return why
}

// dispatchedByName reports whether nothing but its name says of which row a call is.
func dispatchedByName(s *Schema) bool {
	d := aten.DispatchOf(s.Name, s.Overload)
	return d != nil && d.In == "" && !d.Back
}

// viewing reports whether all results lie in storages of arguments.
func viewing(c *call) bool {
	in := map[int]bool{}
	for _, v := range c.tensors {
		for _, t := range stored(v) {
			in[t.Storage] = true
		}
	}
	for _, t := range stored(c.Outs) {
		if !in[t.Storage] {
			return false
		}
	}
	return true
}

// tensor is a tensor over a recorded storage, which the caller drops.
func (p *player) tensor(t *Ref) *op.Tensor {
	if t == nil {
		return nil
	}
	m := p.r.Metas[t.Meta]
	if !m.Known || t.Storage == Nowhere {
		p.p.Fail("a tensor of a type, layout or number of dimensions that rows do not know")
	}
	l := m.Layout
	l.Offset = t.Offset
	if p.held[t.Storage] == nil {
		if p.host[t.Storage] {
			return p.p.Elsewhere(l, m.DType)
		}
		if p.r.Storages[t.Storage].CUDA && p.r.Storages[t.Storage].Bytes > 0 {
			p.p.Fail("storage %d is used after it is gone", t.Storage)
		}
		if !p.r.Storages[t.Storage].CUDA {
			return p.p.Elsewhere(l, m.DType)
		}
		p.make(t.Storage)
	}
	return p.p.Alias(p.held[t.Storage], l, m.DType)
}

func (p *player) tensors(list []*Ref) []*op.Tensor {
	out := make([]*op.Tensor, len(list))
	for i, t := range list {
		out[i] = p.tensor(t)
	}
	return out
}

// row runs a row for a call and gives its results to the storages that the call made.
func (p *player) row(c *call, d *aten.Dispatch, fresh []int) string {
	args, err := c.args(d)
	if err != nil {
		return err.Error()
	}
	named := d.In
	if named == "" {
		named = strings.Join(c.order, " ")
	}
	in, err := c.inputs(named)
	if err != nil {
		return err.Error()
	}
	var made []*op.Tensor
	var held []*op.Tensor
	if d.Back {
		made, held, err = p.derive(c, d, args, in)
		if err != nil {
			return err.Error()
		}
	} else {
		held = p.tensors(in)
		p.move(c, held)
		if train, ok := c.values["train"].(bool); ok {
			p.p.Env().Training = train
		}
		made = p.p.Do(d.Row, args, held...)
		p.p.Env().Training = true
	}
	why := p.match(c, d, made, held, fresh)
	p.p.Drop(held...)
	return why
}

// derive runs the derivative of a row.
func (p *player) derive(c *call, d *aten.Dispatch, args any, in []*Ref) (made, held []*op.Tensor, err error) {
	grads, err := c.inputs(d.Grads)
	if err != nil {
		return nil, nil, err
	}
	out, err := c.inputs(d.Out)
	if err != nil {
		return nil, nil, err
	}
	g, ins, outs := p.tensors(grads), p.tensors(in), p.tensors(out)
	held = append(append(append(held, g...), ins...), outs...)
	inM, outM := make([]op.Meta, len(in)), make([]op.Meta, max(len(out), len(g)))
	wanted, results := d.Wanted, refs(c.Outs)
	if wanted == nil {
		for i := range in {
			wanted = append(wanted, i)
		}
	}
	for i, t := range ins {
		if t != nil {
			inM[i] = *t.Meta()
		}
	}
	for k, i := range wanted { // a gradient is as its input
		if k < len(results) && results[k] != nil && i < len(inM) && ins[i] == nil {
			if m := p.r.Metas[results[k].Meta]; m.Known {
				inM[i] = op.Meta{Layout: m.Layout, DType: m.DType}
				ins[i] = p.p.Elsewhere(m.Layout, m.DType) // that there is one is all that matters
				held = append(held, ins[i])
			}
		}
	}
	for i, t := range outs {
		if t != nil {
			outM[i] = *t.Meta()
		}
	}
	for i, t := range g {
		if t != nil {
			outM[i] = *t.Meta()
		}
	}
	needs := make([]bool, len(in))
	mask, masked := c.values[d.Mask].([]any)
	for k, i := range wanted {
		switch {
		case i >= len(needs):
		case d.Mask == "":
			needs[i] = k == 0 || d.Wanted != nil || len(results) > k && results[k] != nil
		case masked:
			m := mask[min(k, len(mask)-1)]
			needs[i] = m == true
		}
	}
	all := p.p.Derive(d.Row, args, g, ins, outs, inM, outM, needs)
	for _, i := range wanted {
		if i < len(all) {
			made = append(made, all[i])
			all[i] = nil
		}
	}
	p.p.Drop(all...)
	return made, held, nil
}

// copy is copy_ and _to_copy: between devices what is copied must lie alike
// (copy_requires_temporaries and copy_kernel_cuda in aten/src/ATen/native/cuda/Copy.cu).
func (p *player) copy(c *call, fresh []int) {
	var dst, src *Ref
	if c.schema.Name == "copy_" {
		dst, src = first(c.tensors["self"]), first(c.tensors["src"])
	} else {
		dst, src = first(c.Outs), first(c.tensors["self"])
		for _, n := range fresh {
			p.make(n)
		}
	}
	if dst == nil || src == nil {
		return
	}
	to, from := p.r.Metas[dst.Meta], p.r.Metas[src.Meta]
	onto, off := p.r.Storages[dst.Storage].CUDA, p.r.Storages[src.Storage].CUDA
	if onto == off || !to.Known || !from.Known {
		return
	}
	p.p.Drop(p.p.CopyTemporaries(to.Layout, to.DType, from.Layout, from.DType, onto, c.values.Bool("non_blocking"))...)
}

func first(v any) *Ref {
	for _, t := range stored(v) {
		return t
	}
	return nil
}
