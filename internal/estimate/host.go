package estimate

import (
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/host"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/tensor"
)

// hostUsage says what the job needs of host memory.
func (o *Outcome) hostUsage() (*host.Usage, error) {
	s, p := o.Job.Spec, o.Job.Program
	j := host.Job{Static: p.Static || len(p.Inputs) == 0, Dataset: o.Job.Data.Dataset, Transform: o.Job.Data.Transform, Processes: o.Job.ranks(), Loading: host.Built}
	if p.Parallel.FSDP != nil {
		j.Loading = host.Sharded
	}
	for _, in := range p.Inputs {
		b, err := tensor.MulBytes(append([]int64{in.DType.Size()}, in.Size...)...)
		if err != nil {
			return nil, err
		}
		j.Batch = append(j.Batch, b)
	}
	if l := s.Data.Loader; l != nil {
		j.Workers, j.Prefetch, j.Pinned = l.NumWorkers.V, 2, l.PinMemory.V
		j.Copied = l.Context.V != "fork" || s.Data.Dataset != nil && s.Data.Dataset.Objects.V
		if l.PrefetchFactor.Set {
			j.Prefetch = l.PrefetchFactor.V
		}
	}
	var sizes []size
	for _, m := range p.Models {
		made := func(t *program.Param, _ bool) tensor.DType { // then the call that moves the model converts it
			switch {
			case t.DType != p.DType:
				return t.DType
			case m.Quantized != nil:
				return m.Quantized.DType
			}
			return tensor.Float32
		}
		if l := m.Loaded; l != nil { // the file's own tensors, in the type of the load
			made = func(t *program.Param, param bool) tensor.DType {
				if !param || !t.DType.IsFloating() || !l.OnDevice && t.DType.Size() > l.DType.Size() { // converted before it is moved
					return t.DType
				}
				return l.DType
			}
		}
		b, err := built(m.Root, made)
		if err != nil {
			return nil, fmt.Errorf("%s: model %q in host memory: %w", s.Path, m.Name, err)
		}
		sizes = append(sizes, b)
		j.Model, j.Tensor = max(j.Model, b.total), max(j.Tensor, b.largest)
	}
	switch {
	case j.Loading != host.Built:
	case streamed(p.Models):
		j.Loading = host.Streamed
	case !slices.ContainsFunc(p.Models, func(m *program.Model) bool { return m.Loaded == nil }):
		j.Loading = host.Mapped
	}
	if save := s.Train.Save; save != nil && p.Inference == "" {
		t := &o.Played.Totals
		switch {
		case !save.CPUCopy.V: // one tensor at a time
			for _, b := range sizes {
				j.Saving = max(j.Saving, b.largest)
			}
		case save.Optimizer.V:
			j.Saving = t.ParameterBytes + t.BufferBytes + t.OptimizerStateBytes
		default:
			j.Saving = t.ParameterBytes + t.BufferBytes
		}
	}
	var err error
	if j.Offloaded, j.PinnedOff, err = host.Held(o.Played.Host.Events, o.Played.Host.Pinned); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	u, err := host.Estimate(&j)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	return u, nil
}

// streamed reports whether the models are read by from_pretrained to the GPU, as those
// are that are quantized.
func streamed(models []*program.Model) bool {
	return len(models) > 0 && !slices.ContainsFunc(models, func(m *program.Model) bool {
		return m.Quantized == nil && (m.Loaded == nil || !m.Loaded.OnDevice)
	})
}

// host reports the need of one process and compares that of all with what the
// spec says the machine has: processes on several GPUs are taken to be on one
// machine.
func (o *Outcome) host(r *report.Report) {
	u, d := o.Host, &o.Job.Spec.Device
	h := &report.Host{
		ProcessBytes: u.Process, WorkersBytes: u.Workers, ModelBytes: u.Model, DatasetBytes: u.Dataset,
		LoaderBytes: u.Loader, LoaderBatches: u.LoaderBatches, SharedMemoryBytes: u.SharedMemory,
		PinnedBytes: u.Pinned, PinnedBatches: u.PinnedBatches, OffloadedBytes: u.Offloaded, SavingBytes: u.Saving,
		TotalBytes: u.One.Value, LowBytes: u.One.Low, HighBytes: u.One.High, Phase: string(u.Phase), Loading: string(u.Loading),
		AllBytes: u.All.Value, AllLowBytes: u.All.Low, AllHighBytes: u.All.High, RequestBytes: u.Request,
	}
	r.Host = h
	all, each := tensor.Bytes(1), ""
	if n := o.Job.ranks(); n > 1 {
		all, each = tensor.Bytes(n), fmt.Sprintf(" by %d processes on one machine", n)
	}
	if shm := d.SHM; shm != nil {
		h.SharedMemoryLimitBytes = shm.V
		if all*h.SharedMemoryBytes > shm.V {
			h.Result = report.OOMs
			h.Reason = fmt.Sprintf("workers hand over batches in up to %v of /dev/shm, which has %v: they fail with a bus error", all*h.SharedMemoryBytes, shm.V)
		}
	}
	if d.HostRAM == nil {
		return
	}
	h.LimitBytes = d.HostRAM.V
	need := fmt.Sprintf("%v of host memory needed%s while %s, %v there", h.AllBytes, each, report.HostPhases[h.Phase], h.LimitBytes)
	switch {
	case h.Result != "": // of /dev/shm
	case h.AllBytes > h.LimitBytes:
		h.Result, h.Reason = report.OOMs, need
	case h.AllHighBytes > h.LimitBytes:
		h.Result, h.Reason = report.Tight, fmt.Sprintf("%s; with what is assumed at its worst it would be %v", need, h.AllHighBytes)
	default:
		h.Result, h.Reason = report.Fits, need
	}
}

// size is what the tensors of a model take together, and the largest of them.
type size struct{ total, largest tensor.Bytes }

// built is the size of a model in host memory, whose parameters and buffers have the types
// that made says, unless theirs are fixed.
func built(c *program.Class, made func(p *program.Param, param bool) tensor.DType) (size, error) {
	var s size
	var err error
	for i, list := range [][]program.Param{c.Params, c.Buffers} {
		for j := range list {
			p := &list[j]
			if p.Tied != "" {
				continue
			}
			d := p.DType
			if !p.Fixed {
				d = made(p, i == 0)
			}
			b, wrong := tensor.MulBytes(append([]int64{d.Size()}, p.Size...)...)
			if wrong != nil {
				continue // it was refused when it was played
			}
			if s.total, err = tensor.AddBytes(s.total, b); err != nil {
				return size{}, err
			}
			s.largest = max(s.largest, b)
		}
	}
	for _, ch := range c.Children {
		sub, err := built(ch.Class, made)
		if err != nil {
			return size{}, err
		}
		if s.total, err = tensor.AddBytes(s.total, sub.total); err != nil {
			return size{}, err
		}
		s.largest = max(s.largest, sub.largest)
	}
	return s, nil
}
