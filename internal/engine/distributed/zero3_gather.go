package distributed

import (
	"cmp"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"slices"
)

// coordinator is PartitionedParameterCoordinator: it gathers the parameters of a module before
// it computes and, once it knows in which order modules do, those of the next ones ahead.
type coordinator struct {
	root    *hooked
	around  []*hooked // modules around the model, without parameters
	under   []*hooked // modules whose forward is under way (FWD_MODULE_STACK)
	records traceMode
	at      int       // __step_id: modules since the last forward of the model
	order   []*hooked // __submodule_order
	uses    []use     // __param_order
	queue   []use
	fetched map[*divided]int // __most_recent_step_id_param_fetched_for
	known   map[visit][]*divided
	back    []*hooked // __active_backward_submodules
	live    int64     // __n_available_params
	flying  []*divided
	sums    *op.Tensor // grad_partitions_flat_buffer
}

// traceMode is ZeRoTraceMode.
type traceMode uint8

const (
	invalid traceMode = iota
	recording
	complete
)

// use is a parameter, and the step at which it is needed.
type use struct {
	*divided
	at int
}

// visit is a module, and the step at which it is given up.
type visit struct {
	m  *hooked
	at int
}

// gathering is the handle of what is gathered together.
type gathering struct {
	params  []*divided
	flats   []*op.Tensor // of several: their parts, process by process, those of each type in one
	done    bool
	waiting int
}

// resetStep begins a forward pass of the model. The first two compare lists of modules and
// parameters between processes; then the order is known.
func (z *zero3) resetStep() {
	z.landAll()
	if z.records != complete {
		z.compare(len(z.order))
		if z.records == recording {
			z.uses = z.uses[:0]
			for i, m := range z.order {
				params := slices.Clone(m.params)
				slices.SortFunc(params, func(a, b *divided) int { return int(a.id - b.id) })
				for _, x := range params {
					z.uses = append(z.uses, use{x, i})
				}
			}
			z.compare(len(z.uses))
			z.compare(len(z.uses))
			z.records = complete
		} else {
			z.records = recording
		}
	}
	z.queue = slices.Clone(z.uses)
	clear(z.fetched)
	z.at, z.live = 0, 0
}

// compare is assert_ints_same_as_other_ranks of a list of so many.
func (z *zero3) compare(n int) {
	z.p.Drop(z.vector(1, tensor.Int64))
	z.p.Drop(z.vector(int64(n), tensor.Int64))
}

// forget is _invalidate_trace.
func (z *zero3) forget() {
	z.records = invalid
	z.order, z.uses, z.queue = nil, nil, nil
	clear(z.fetched)
	z.landAll()
}

// landAll waits for what was gathered ahead and not used (_clean_inflight_param_registry).
func (z *zero3) landAll() {
	for len(z.flying) > 0 {
		x := z.flying[0]
		z.await(x)
		z.giveUp(x)
	}
}

// fetch is trace_prologue, record_module and fetch_sub_module.
func (z *zero3) fetch(h *hooked, forward bool) {
	if z.records == complete && (z.at >= len(z.order) || z.order[z.at] != h) {
		z.forget()
	}
	if z.records == recording {
		z.order = append(z.order, h)
	}
	if !forward && !slices.Contains(z.back, h) {
		z.back = append(z.back, h)
	}
	var parts int64
	for _, x := range h.params {
		if x.status == notAvailable {
			parts += x.part
		}
	}
	if parts > 0 {
		z.gather(h.params)
	}
	recomputes := forward && z.p.Recomputing > 0 && len(z.back) > 0
	for _, x := range h.params {
		x.active[h] = true
		if recomputes && !x.leaf().Requires {
			owner := z.back[len(z.back)-1]
			if !slices.Contains(owner.again, x) {
				owner.again = append(owner.again, x)
			}
			x.active[owner] = true
		}
		if x.handle != nil {
			z.inGather(func() { z.await(x) })
		}
	}
	if z.records == complete {
		z.ahead(h)
	}
	z.at++
}

// ahead gathers parameters of the next modules.
func (z *zero3) ahead(h *hooked) {
	last := func(x *divided) int {
		if at, ok := z.fetched[x]; ok {
			return at
		}
		return -1
	}
	var open []*divided
	for _, x := range h.params {
		if last(x) < z.at {
			open = append(open, x)
		}
	}
	var found []*divided
	for len(z.queue) > 0 && len(found) < len(open) {
		u := z.queue[0]
		z.queue = z.queue[1:]
		z.fetched[u.divided] = u.at
		if !slices.Contains(found, u.divided) {
			found = append(found, u.divided)
		}
	}
	for _, x := range open {
		if !slices.Contains(found, x) {
			z.p.Fail("DeepSpeed fails in %s: parameters are not used in the order of the step before (tracing error)", h.m.Class.Describe())
		}
	}
	if z.Stage3.Prefetch <= 0 {
		return
	}
	most := min(z.Stage3.MaxLive-z.live, z.Stage3.Prefetch)
	var next []*divided
	var n int64
	for len(z.queue) > 0 && n < most {
		u := z.queue[0]
		z.queue = z.queue[1:]
		z.fetched[u.divided] = max(last(u.divided), u.at)
		if u.status == notAvailable && !slices.Contains(next, u.divided) {
			next, n = append(next, u.divided), n+u.numel()
		}
	}
	if n > 0 {
		z.gather(next)
	}
}

// release is release_sub_module.
func (z *zero3) release(h *hooked, forward bool) {
	free := h.params
	if z.records == complete {
		free = z.unneeded(h)
	}
	all := h.params
	if !forward {
		all = slices.Clone(all)
		for _, x := range h.again {
			if !slices.Contains(all, x) {
				all = append(all, x)
			}
			if !x.persist {
				free = append(slices.Clone(free), x)
			}
		}
		h.again = nil
		z.back = slices.DeleteFunc(z.back, func(o *hooked) bool { return o == h })
	}
	for _, x := range all {
		delete(x.active, h)
		if slices.Contains(free, x) {
			z.giveUp(x)
		}
	}
}

// unneeded is __params_to_release, which is remembered for each module and step.
func (z *zero3) unneeded(h *hooked) []*divided {
	if free, ok := z.known[visit{h, z.at}]; ok {
		return free
	}
	var free []*divided
	for _, x := range h.params {
		if at, ok := z.fetched[x]; !x.persist && !(ok && at > z.at) {
			free = append(free, x)
		}
	}
	var passed int64
	for _, m := range z.order[min(z.at, len(z.order)):] {
		if passed >= z.Stage3.MaxReuse {
			break
		}
		for _, x := range m.params {
			free = slices.DeleteFunc(free, func(y *divided) bool { return y == x })
			passed += x.numel()
		}
	}
	z.known[visit{h, z.at}] = free
	return free
}

// giveUp is __release_param.
func (z *zero3) giveUp(x *divided) {
	if x.status == available && len(x.active) == 0 {
		z.free(x)
		z.live -= x.numel()
	}
}

// free gives up what was gathered of a parameter.
func (z *zero3) free(x *divided) { z.empty(x) }

// leftovers is release_backward_leftovers.
func (z *zero3) leftovers() {
	for len(z.back) > 0 {
		h := z.back[len(z.back)-1]
		z.back = z.back[:len(z.back)-1]
		all := slices.Clone(h.params)
		for _, x := range h.again {
			if !slices.Contains(all, x) {
				all = append(all, x)
			}
		}
		h.again = nil
		for _, x := range all {
			delete(x.active, h)
			if !x.persist {
				z.giveUp(x)
			}
		}
	}
}

// releaseAll is release_and_reset_all, before the step.
func (z *zero3) releaseAll() {
	for _, x := range z.params {
		if x.handle != nil {
			z.await(x)
		}
		clear(x.active)
		z.giveUp(x)
	}
}

// inGather runs f on the stream of all-gathers, if there is one.
func (z *zero3) inGather(f func()) {
	if z.Overlap {
		z.p.OnStream(autograd.GatherStream, f)
		return
	}
	f()
}

// gather is __all_gather_params of those that are not there.
func (z *zero3) gather(params []*divided) {
	g := &gathering{}
	for _, x := range params {
		if x.status == notAvailable {
			g.params = append(g.params, x)
			z.live += x.numel()
			x.status, x.handle = inFlight, g
		}
	}
	z.flying = append(z.flying, g.params...)
	slices.SortFunc(g.params, func(a, b *divided) int { return int(a.id - b.id) })
	g.waiting = len(g.params)
	z.inGather(func() {
		switch {
		case z.ranks == 1:
			for _, x := range g.params {
				z.fill3(x, x.own, x.own.Offset)
			}
		case z.Stage3.Sequential || len(g.params) == 1:
			for _, x := range g.params {
				z.gatherInto(x)
			}
		case z.Stage3.AllReduce:
			var n int64
			for _, x := range g.params {
				n += x.aligned(z.ranks)
			}
			flat := z.vector(n, g.params[0].own.DType)
			var at int64
			for _, x := range g.params {
				z.fill3(x, flat, at)
				at += x.aligned(z.ranks)
			}
			z.p.Drop(flat)
		default:
			slices.SortStableFunc(g.params, func(a, b *divided) int { return cmp.Compare(a.own.DType.String(), b.own.DType.String()) })
			for i := 0; i < len(g.params); {
				var n int64
				d := g.params[i].own.DType
				for ; i < len(g.params) && g.params[i].own.DType == d; i++ {
					n += g.params[i].part
				}
				g.flats = append(g.flats, z.vector(n*z.ranks, d))
			}
		}
	})
}

// gatherInto gathers a parameter alone, into memory of its own.
func (z *zero3) gatherInto(x *divided) {
	t := z.vector(x.aligned(z.ranks), x.own.DType)
	z.fill3(x, t, 0)
	z.p.Drop(t)
}

// gatherNow is Parameter.all_gather of one that is not there.
func (z *zero3) gatherNow(x *divided) {
	z.gatherInto(x)
	x.status = available
}

// gatherPersistent gathers after the step what stays until the next one.
func (z *zero3) gatherPersistent() {
	if z.ranks == 1 && len(z.persistent) > 1 && !z.Stage3.Sequential {
		for _, x := range z.persistent {
			z.fill3(x, x.own, x.own.Offset)
			x.status = available
		}
		return
	}
	var made []*op.Tensor
	for _, x := range z.persistent {
		made = append(made, z.vector(x.aligned(z.ranks), x.own.DType))
	}
	for i, x := range z.persistent {
		z.fill3(x, made[i], 0)
		z.p.Drop(made[i])
		x.status = available
	}
}

// await waits for the all-gather of a parameter: those that were gathered together are copied
// apart by the first that waits.
func (z *zero3) await(x *divided) {
	g := x.handle
	x.handle = nil
	z.flying = slices.DeleteFunc(z.flying, func(y *divided) bool { return y == x })
	if !g.done {
		g.done = true
		for _, y := range g.params {
			if g.flats != nil {
				t := z.vector(y.numel(), y.own.DType)
				z.fill3(y, t, 0)
				z.p.Drop(t)
			}
			y.status = available
		}
	}
	if g.waiting--; g.waiting == 0 {
		z.p.Drop(g.flats...)
		g.flats = nil
	}
}
