package distributed

import (
	"slices"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// The hooks of modules with which stage 3 of ZeRO knows what computes (parameter_offload.py).

// hooked is a module, with what its hooks know.
type hooked struct {
	z        *zero3
	m        *python.Module
	params   []*divided // its own, then those of others that it uses (ds_external_parameters)
	again    []*divided // that a recomputation in its backward pass has gathered (ds_recompute_parameters)
	awaited  int        // gradients of its inputs that are not there (ds_grads_remaining)
	backward int        // results whose gradients are not there (applied_pre_backward_ref_cnt)
}

// attach registers the hooks of a module and those in it.
func (z *zero3) attach(root *python.Module) {
	z.fetched, z.known = map[*divided]int{}, map[visit][]*divided{}
	seen := map[*python.Module]bool{}
	var each func(m *python.Module)
	each = func(m *python.Module) {
		if seen[m] {
			return
		}
		seen[m] = true
		if m.Hooks != nil {
			z.p.Fail("%s has hooks of its own; that is not modelled with stage 3 of ZeRO", m.Class.Describe())
		}
		h := &hooked{z: z, m: m}
		for _, c := range m.Params {
			if x := z.of[c]; !slices.Contains(h.params, x) {
				h.params = append(h.params, x)
			}
		}
		m.Hooks = h
		if z.root == nil {
			z.root = h
			z.under = append(z.under, h)
		}
		for _, ch := range m.Registered {
			each(ch)
		}
	}
	each(root)
	for range z.Stage3.Around {
		z.around = append(z.around, &hooked{z: z, m: root})
	}
	z.p.Reading = z.read
	if z.Stage3.OwnLinear {
		z.p.Functions = map[*op.Op]*op.Op{aten.Linear: aten.LinearForZeRO3}
	}
}

// read gathers a parameter that a module uses though it is another's, which it is known to do
// from then on (ZeROOrderedDict.__getitem__).
func (z *zero3) read(c *python.Cell) {
	x := z.of[c]
	if x == nil || x.status != notAvailable {
		return
	}
	top := z.under[len(z.under)-1]
	if !slices.Contains(top.params, x) {
		top.params = append(top.params, x)
	}
	z.quietly(top.m.Layer, func() { z.gatherNow(x) })
}

// quietly runs what DeepSpeed does in a hook.
func (z *zero3) quietly(layer int32, f func()) {
	p := z.p
	outer := p.Push()
	p.Label("DeepSpeedZeRoOffload")
	p.Layer = layer
	p.Env().GradMode = false
	f()
	p.Pop(outer)
}

// PreForward implements python.ForwardHooks.
func (h *hooked) PreForward(args []python.Value, names []string) []python.Value {
	z, p := h.z, h.z.p
	z.quietly(h.m.Layer, func() {
		if h == z.root {
			z.resetStep()
			for _, w := range z.around {
				z.under = append(z.under, w)
				z.fetch(w, true)
			}
		}
		z.under = append(z.under, h)
		z.fetch(h, true)
		if h.m.Class.Is().Whole { // its forward reads them first
			for _, ch := range h.m.Registered {
				python.EachParameter(ch, func(m *python.Module, i int) { z.read(m.Params[i]) })
			}
		}
	})
	out := p.HoldAll(args)
	h.awaited = 0
	for i := range out {
		if i >= len(names) || names[i] == "" {
			h.boundary(&out[i], h.watchInput)
		}
	}
	return out
}

// PostForward implements python.ForwardHooks.
func (h *hooked) PostForward(v python.Value) python.Value {
	z := h.z
	z.quietly(h.m.Layer, func() {
		z.under = z.under[:len(z.under)-1]
		z.release(h, true)
	})
	h.boundary(&v, h.watchResult)
	if h == z.root {
		for _, w := range slices.Backward(z.around) {
			z.quietly(h.m.Layer, func() {
				z.under = z.under[:len(z.under)-1]
				z.release(w, true)
			})
			w.boundary(&v, w.watchResult)
		}
	}
	return v
}

// boundary puts the tensors of a value through an autograd.Function (apply_to_tensors_only).
func (h *hooked) boundary(v *python.Value, through func(t *op.Tensor) *op.Tensor) {
	p := h.z.p
	switch {
	case v.List != nil:
		l := python.NewList(p.HoldAll(v.List.Items))
		for i := range l.Items {
			h.boundary(&l.Items[i], through)
		}
		p.LetGo(*v)
		*v = python.Value{List: l}
	case v.T != nil:
		t := through(v.T)
		p.LetGo(*v)
		v.T = t
	}
}

// passage is an autograd.Function that hands on what it gets, and runs something when the
// gradient comes.
type passage struct{ run func() }

// Release implements autograd.Function.
func (passage) Release() {}

// Backward implements autograd.Function.
func (f passage) Backward(_ *autograd.Node, b *op.Back) {
	if b.Grads[0] == nil { // materialized
		b.Set(0, b.New(tensor.Contiguous(b.OutM[0].Size), b.OutM[0].DType))
	}
	f.run()
	if b.Grads[0] != nil {
		b.Set(0, b.Keep(b.Grads[0]))
	}
}

var (
	preBackwardRow = &op.Op{Name: "PreBackwardFunctionForModule", Node: "PreBackwardFunctionForModuleBackward"}
	postModuleRow  = &op.Op{Name: "PostBackwardFunctionModule", Node: "PostBackwardFunctionModuleBackward"}
)

// through is t behind such a function.
func (h *hooked) through(row *op.Op, t *op.Tensor, run func()) *op.Tensor {
	p := h.z.p
	out := p.Alias(t, t.Layout, t.DType)
	if p.NeedsGrad(t) {
		n := p.NewFunction(row, []*op.Tensor{t})
		n.Own(passage{run})
		p.Result(n, out)
	}
	return out
}

// watchResult fetches the module's parameters before the gradient of a result goes on.
func (h *hooked) watchResult(t *op.Tensor) *op.Tensor {
	h.backward++
	return h.through(preBackwardRow, t, func() {
		if h.backward > 0 {
			h.z.quietly(h.m.Layer, func() { h.z.fetch(h, false) })
			h.backward--
		}
	})
}

// watchInput gives the module's parameters up once the gradients of all inputs are there.
func (h *hooked) watchInput(t *op.Tensor) *op.Tensor {
	if h.z.p.NeedsGrad(t) {
		h.awaited++
	}
	return h.through(postModuleRow, t, func() {
		if h.awaited--; h.awaited == 0 {
			h.z.quietly(h.m.Layer, func() { h.z.release(h, false) })
		}
	})
}
