package engine

import (
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// average is torch.optim.swa_utils.AveragedModel(model): a deep copy of the
// model, which is made on the GPU and then perhaps moved
// (torch/optim/swa_utils.py). The number of updates is counted on the CPU.
func (j *job) average() {
	e := j.prog.EMA
	if e == nil {
		return
	}
	source := j.models[e.Model]
	m := j.Instantiate(source.Class, e.Name)
	j.DeepCopy(m, source)
	if e.CPU {
		j.ToCPU(m)
	}
	j.models[e.Name] = m
}

// updateAverage is ema.update_parameters(model). The parameters are updated in
// place; their number of updates is copied to the GPU for each type among them.
// Averages on the CPU need the parameters there, all at one time. The first update
// is a copy; buffers are copied in each.
func (j *job) updateAverage() {
	e := j.prog.EMA
	source := j.models[e.Model]
	cells, averages := python.Parameters([]*python.Module{source}), python.Parameters([]*python.Module{j.models[e.Name]})
	follow := func(average, now *op.Tensor) {
		switch {
		case !j.Executes():
		case !j.updated:
			j.CopyTo(average, now)
		default:
			j.Must(j.backend.Lerp(average, now, 1-e.Decay))
		}
	}
	var buffers []*python.Cell
	j.models[e.Name].EachBuffer(func(c *python.Cell) { buffers = append(buffers, c) })
	buffer := func(now *op.Tensor) {
		j.CopyTo(buffers[0].T, now)
		buffers = buffers[1:]
	}
	outer := j.Push()
	j.Label("AveragedModel.update_parameters")
	if e.CPU {
		var copies []*op.Tensor
		for _, c := range cells {
			copies = append(copies, j.Transfer(c.T, true, false, c.T.LikeDense()))
		}
		for i, c := range copies {
			follow(averages[i].T, c)
		}
		source.EachBuffer(func(c *python.Cell) {
			t := j.Transfer(c.T, true, false, c.T.LikeDense())
			buffer(t)
			j.Drop(t)
		})
		for i := len(copies) - 1; i >= 0; i-- {
			j.Drop(copies[i])
		}
	} else {
		seen := map[tensor.DType]bool{}
		for i, c := range cells {
			if j.updated && !seen[c.T.DType] {
				seen[c.T.DType] = true
				j.Drop(j.scalar(tensor.Int64))
			}
			follow(averages[i].T, c.T)
		}
		source.EachBuffer(func(c *python.Cell) { buffer(c.T) })
	}
	j.updated = true
	j.Pop(outer)
}
