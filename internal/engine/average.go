package engine

import (
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
	m := j.instantiate(source.class, e.Name)
	j.deepCopy(m, source)
	if e.CPU {
		j.toCPU(m)
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
	cells, averages := parameters([]*module{source}), parameters([]*module{j.models[e.Name]})
	follow := func(average, now *op.Tensor) {
		switch {
		case !j.executes():
		case !j.updated:
			j.copyTo(average, now)
		default:
			j.must(j.backend.Lerp(average, now, 1-e.Decay))
		}
	}
	var buffers []*cell
	j.models[e.Name].eachBuffer(func(c *cell) { buffers = append(buffers, c) })
	buffer := func(now *op.Tensor) {
		j.copyTo(buffers[0].t, now)
		buffers = buffers[1:]
	}
	outer := j.push()
	j.label("AveragedModel.update_parameters")
	if e.CPU {
		var copies []*op.Tensor
		for _, c := range cells {
			copies = append(copies, j.transfer(c.t, true, false, c.t.LikeDense()))
		}
		for i, c := range copies {
			follow(averages[i].t, c)
		}
		source.eachBuffer(func(c *cell) {
			t := j.transfer(c.t, true, false, c.t.LikeDense())
			buffer(t)
			j.Drop(t)
		})
		for i := len(copies) - 1; i >= 0; i-- {
			j.Drop(copies[i])
		}
	} else {
		seen := map[tensor.DType]bool{}
		for i, c := range cells {
			if j.updated && !seen[c.t.DType] {
				seen[c.t.DType] = true
				j.Drop(j.scalar(tensor.Int64))
			}
			follow(averages[i].t, c.t)
		}
		source.eachBuffer(func(c *cell) { buffer(c.t) })
	}
	j.updated = true
	j.pop(outer)
}
