package autograd

import (
	"github.com/memplan/memplan/internal/op"
)

// execInfo says what a node of a graph is for in torch.autograd.grad: nodes that
// lead to no input do not run.
type execInfo struct {
	needed   bool // it leads to an input
	captures []capture
}

// capture is a gradient that is asked for: that of a node's result nr.
type capture struct{ nr, to int }

// executes reports whether a node runs, or is where a gradient is taken.
func (g *graphTask) executes(n *Node) bool {
	if g.exec == nil {
		return true
	}
	info := g.exec[n]
	return info != nil && (info.needed || len(info.captures) > 0)
}

// info is that of a node, made if need be.
func (g *graphTask) info(n *Node) *execInfo {
	info := g.exec[n]
	if info == nil {
		info = &execInfo{}
		g.exec[n] = info
	}
	return info
}

// initToExecute finds the nodes on the way from the roots to the inputs
// (GraphTask::init_to_execute).
func (p *Player) initToExecute(g *graphTask, roots, inputs []edge) {
	g.exec, g.captured = map[*Node]*execInfo{}, make([]*op.Tensor, len(inputs))
	for i, e := range inputs {
		if e.fn != nil {
			info := g.info(e.fn)
			info.captures = append(info.captures, capture{e.nr, i})
		}
	}
	type visit struct {
		n    *Node
		next int // of its edges
	}
	seen := map[*Node]bool{}
	for _, root := range roots {
		if seen[root.fn] {
			continue
		}
		seen[root.fn] = true
		stack := []visit{{n: root.fn}}
		for len(stack) > 0 {
			v := &stack[len(stack)-1]
			if v.next == len(v.n.edges) {
				stack = stack[:len(stack)-1]
				continue
			}
			p.Meter.Work(1)
			next := v.n.edges[v.next].fn
			switch {
			case next == nil:
				v.next++
			case !seen[next]:
				seen[next] = true
				stack = append(stack, visit{n: next})
			default: // its own edges were looked at
				if g.executes(next) {
					g.info(v.n).needed = true
				}
				v.next++
			}
		}
	}
}

// take keeps the gradients of a node that are asked for, and reports whether it
// runs itself.
func (p *Player) take(g *graphTask, n *Node) bool {
	if g.exec == nil {
		return true
	}
	info := g.exec[n]
	if info == nil {
		return false
	}
	for _, c := range info.captures {
		if t := n.grads[c.nr]; t != nil {
			g.captured[c.to] = p.Keep(t)
		}
	}
	return info.needed
}

// Grad plays torch.autograd.grad: the gradients of outputs with respect to inputs,
// which the caller owns. A gradient of an output that is nil becomes ones; those stay
// the caller's, too. With create the backward pass is recorded itself.
func (p *Player) Grad(outputs, inputs, grads []*op.Tensor, keep, create bool) []*op.Tensor {
	for i, t := range outputs {
		if !Of(t).Requires {
			p.Fail("grad of an output that does not require grad")
		}
		if grads[i] == nil {
			grads[i] = p.ones(t)
		}
	}
	var edges []edge
	for _, t := range inputs {
		o := Of(t)
		switch fn := p.gradFn(o); {
		case !o.Requires:
			p.Fail("grad with respect to an input that does not require grad; requires_grad_ makes it one")
		case fn != nil:
			edges = append(edges, edge{fn, o.nr})
		default:
			edges = append(edges, edge{o.acc, 0})
		}
	}
	g := &graphTask{keep: keep, create: create}
	p.run(g, outputs, grads, edges)
	for i, t := range g.captured {
		if t == nil {
			p.Fail("grad with respect to input %d, which the outputs do not depend on", i)
		}
	}
	return g.captured
}
