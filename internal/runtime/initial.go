package runtime

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/pool"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// weightSize is the size of a layer's weight, nil if it has none.
func weightSize(c *program.Class) []int64 {
	if q := c.Quantized; q != nil {
		return []int64{q.Out, q.In}
	}
	for _, p := range c.Params {
		if unmasked(p.Name) == "weight" {
			return p.Size
		}
	}
	return nil
}

// drawn is how many elements come of one stream of random numbers.
const drawn = 1 << 18

// Initialize implements engine.Backend.
func (x *Executor) Initialize(t *op.Tensor, of python.Initial) error {
	if of.Model {
		x.weights.of[of.Name] = t
		if !of.Param.NonPersistent { // no part of the state dict
			x.weights.names = append(x.weights.names, of.Name)
		}
	}
	if x.given != nil && of.Model && !of.Param.NonPersistent {
		if done, err := x.given.take(x, t, of.Name, of.Shared); done || err != nil {
			return err
		}
	}
	switch {
	case of.Shared:
		return nil
	case of.Param.Given != nil:
		return x.write(t, tensor.Encode(t.DType, of.Param.Given))
	case of.Masked != nil:
		return x.pruned(t, of.Masked, of.Amount)
	case of.Adapter && strings.HasSuffix(of.Name, ".lora_B.weight"): // LoraLayer.reset_lora_parameters of PEFT
		return x.Fill(t, 0)
	}
	d, name := nn.Distribution{}, unmasked(of.Param.Name)
	is := of.Class.Is()
	switch rule := is.Rule(name); {
	case of.Deviation > 0 && (is.Linear || is.Conv > 0 || is.Table): // PreTrainedModel._init_weights
		if name == "weight" {
			d.Normal = of.Deviation
		}
	case rule != nil:
		d = rule(nn.Parameter{Name: name, Size: of.Param.Size, Weight: weightSize(of.Class)})
	}
	switch of.Param.Init {
	case "ones":
		d.Constant = 1
	case "normal":
		if d.Normal = of.Deviation; d.Normal == 0 {
			d.Normal = 1
		}
	}
	if d.Uniform == 0 && d.Normal == 0 || !t.DType.IsFloating() {
		return x.Fill(t, d.Constant)
	}
	seed := x.Draw()
	if x.skip {
		return nil
	}
	return x.draw(t, d, uint64(seed), of.Param.Blank)
}

// together is how many streams are drawn from at a time, so that little of a large
// parameter is in memory beside itself.
const together = 4

// draw fills t with numbers of a distribution, but for a row that stays empty, if there is
// one.
func (x *Executor) draw(t *op.Tensor, d nn.Distribution, seed uint64, blank *int64) error {
	n, empty, end := int(t.Numel()), 0, 0
	if blank != nil {
		width := int(t.Dim(t.Rank() - 1))
		empty, end = int(*blank)*width, (int(*blank)+1)*width
	}
	v := make([]float64, min(n, together*drawn))
	for first := 0; first < n; first += len(v) {
		part := v[:min(len(v), n-first)]
		pool.Do((len(part)+drawn-1)/drawn, func(k int) { // the same with any number of cores
			r := kernel.NewStream(seed ^ uint64(first/drawn+k)<<48)
			for i := k * drawn; i < min(len(part), (k+1)*drawn); i++ {
				if d.Normal > 0 {
					part[i] = d.Normal * r.Normal()
				} else {
					part[i] = d.Uniform * (2*r.Uniform() - 1)
				}
			}
		})
		for i := max(empty, first); i < min(end, first+len(part)); i++ {
			part[i-first] = 0
		}
		if err := x.writePart(t, int64(first), tensor.Encode(t.DType, part)); err != nil {
			return err
		}
	}
	return nil
}

// unmasked is the name of a parameter without what torch.nn.utils.prune appends
// where it puts a mask over it.
func unmasked(name string) string { return strings.TrimSuffix(name, "_orig") }

// pruned fills a mask of torch.nn.utils.prune.l1_unstructured: 0 for the smallest
// elements of a weight, an amount of all.
func (x *Executor) pruned(t, weight *op.Tensor, amount float64) error {
	x.running = "l1_unstructured"
	return x.OnHost(func(a op.Arrays) {
		w := a.Get(weight)
		order := make([]int, len(w))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(math.Abs(w[i]), math.Abs(w[j])) })
		out := make([]float64, len(w))
		for i, at := range order {
			if i >= int(math.RoundToEven(amount*float64(len(w)))) {
				out[at] = 1
			}
		}
		a.Put(t, out)
	})
}
