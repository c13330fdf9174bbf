package techniques

import (
	"math"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// Shrinking is the structured pruning of a model: while it is elaborated, layers
// get fewer outputs, to which those that follow adapt.
type Shrinking struct {
	spec   *spec.Prune
	names  program.Patterns
	except program.Patterns
	Layers []string // that could have fewer outputs
	calls  map[string]bool
}

// NewShrinking reads what the spec says of pruning a model: of itself, or of all. It
// returns nil unless channels are removed.
func NewShrinking(errs *spec.Errors, p *spec.Prune) *Shrinking {
	if p == nil || !p.Structured.V {
		return nil
	}
	if len(p.Modules) == 0 {
		errs.Failf(p.At, "prune with structured: true needs modules, the layers that get fewer outputs")
	}
	return &Shrinking{spec: p, names: endings(p.Modules), except: endings(p.Except), calls: map[string]bool{}}
}

// endings are names of modules as patterns: a name without a star stands for
// every path that ends with it.
func endings(names []spec.String) program.Patterns {
	var out program.Patterns
	for _, n := range names {
		out = append(out, n.V)
		if !strings.ContainsAny(n.V, "*?[") {
			out = append(out, "*."+n.V)
		}
	}
	return out
}

// outputs are the arguments that say how many outputs a layer has.
var outputs = []string{"out_features", "out_channels"}

// Shrink reduces the outputs of the layer at a path if the spec asks for it: int
// of what is left of them, and one at least.
func (s *Shrinking) Shrink(path string, args map[string]any) {
	if s == nil {
		return
	}
	for _, name := range outputs {
		n, ok := args[name].(int64)
		if !ok {
			continue
		}
		if !s.calls[path] {
			s.calls[path] = true
			s.Layers = append(s.Layers, path)
		}
		if s.names.Fits(path) && !s.except.Fits(path) {
			args[name] = max(1, int64(math.Floor(float64(n)*(1-s.spec.Amount.V)+1e-9)))
		}
	}
}

// masked puts a mask over the weights of linear layers and convolutions, as
// torch.nn.utils.prune does: the weight becomes weight_orig, and a hook before
// each forward computes it again as weight_mask * weight_orig.
func (j *Job) masked(name string, m *program.Model, p *spec.Prune) {
	quantized := quantizedLayers(m)
	var layers []program.Place
	var known []string
	m.Root.Walk(func(path string, c *program.Class) {
		if (isLinear(c) && !isConv1D(c) || isConv(c)) && quantized[path] == nil {
			layers, known = append(layers, program.Place{Path: path, Class: c}), append(known, path)
		}
	})
	z := &program.Pruning{Amount: p.Amount.V, Modules: moduleNames(j.Spec.Errs, p.Modules, "layer to prune", known), Except: moduleNames(j.Spec.Errs, p.Except, "layer to prune", known)}
	if len(p.Modules) == 0 {
		z.Modules = program.Patterns{"*"}
	}
	tied := tiedModules(m.Root)
	made := map[*program.Class]*program.Class{}
	for _, l := range layers {
		if !z.Modules.Fits(l.Path) || z.Except.Fits(l.Path) {
			continue
		}
		if tied[l.Path] {
			j.fail(p.At, "prune: the weight of %s is tied to another module's, which pruning would separate", l.Path)
		}
		if made[l.Class] == nil {
			made[l.Class] = maskedLayer(l.Class)
		}
		z.Layers = append(z.Layers, program.Place{Path: l.Path, Class: made[l.Class]})
	}
	if len(z.Layers) == 0 {
		j.fail(p.At, "prune: %s has no layer whose weight is masked (Linear, Conv1d to Conv3d)", name)
	}
	m.Pruned = z
}

// maskedLayer is the class of a layer whose weight is masked.
func maskedLayer(c *program.Class) *program.Class {
	w := *c
	weight := c.Params[0]
	orig, mask := weight, weight
	orig.Name, mask.Name = "weight_orig", "weight_mask"
	w.Params = append(append([]program.Param{}, c.Params[1:]...), orig)
	w.Buffers = append(append([]program.Param{}, c.Buffers...), mask)
	w.Attrs = []program.Param{weight}
	f := *c.Forward
	attr := func(name string) *program.Expr { return &program.Expr{Kind: program.Attr, Path: name} }
	product := &program.Expr{Kind: program.CallOp, Row: aten.Mul, OpArgs: &aten.BinaryArgs{}, Args: []*program.Expr{attr("weight_mask"), attr("weight_orig")}, Inputs: []int{0, 1}}
	f.Body = append([]program.Stmt{{Kind: program.SetAttr, Path: "weight", Value: product}}, f.Body...)
	w.Forward = &f
	return &w
}
