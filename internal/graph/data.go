package graph

import (
	"slices"

	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// Data is what the data section says.
type Data struct {
	Dataset   tensor.Bytes // held in host memory
	Transform tensor.Bytes // the most that one sample takes while it is transformed

	// Source names the files of training data by the input that they are for, ""
	// those that are for all; nil: there are none. Validation are those of evaluations.
	Source, Validation map[string][]string
	Share              float64 // of the samples, which only evaluations see
	InOrder            bool    // samples come in the order of the files
}

// readData elaborates the data section: how large samples are as they are stored,
// on their way, and that they end as the model takes them.
func (el *building) readData(d *spec.Data) Data {
	sc := &scope{parent: el.spec.Env, vars: el.globals()}
	var out Data
	if out.InOrder = !d.Shuffle.V; d.Source != nil {
		out.Source = el.dataSource(d.Source)
	}
	switch v := d.Validation; {
	case v == nil:
	case d.Source == nil:
		el.errs.Addf(v.Span, "validation needs source, the data to train on")
	case v.Kind == spec.Float && v.Float > 0 && v.Float < 1:
		out.Share = v.Float
	case v.Kind == spec.Float || v.Kind == spec.Int:
		el.errs.Addf(v.Span, "must be files, or a share of the samples between 0 and 1, not %s", v.Str)
	default:
		out.Validation = el.dataSource(v)
	}
	if l := d.Loader; l != nil && l.NumWorkers.V == 0 {
		if l.PrefetchFactor.Set {
			el.errs.Addf(l.PrefetchFactor.At, "prefetch_factor needs num_workers of 1 or more")
		}
		if l.PersistentWorkers.V {
			el.errs.Addf(l.PersistentWorkers.At, "persistent_workers needs num_workers of 1 or more")
		}
	}
	if len(el.job.Inputs) == 0 {
		return out
	}
	in := el.job.Inputs[0]
	var stored tensor.Bytes
	for _, i := range el.job.Inputs {
		stored += el.bytesOf(i.Size[1:], i.DType, d.Input.At)
	}
	var size []int64
	dtype := in.DType
	var before tensor.Bytes // what a transform reads
	if ds := d.Dataset; ds != nil && ds.Sample != nil {
		switch s := ds.Sample; {
		case s.Bytes != nil && s.Shape != nil:
			el.fail(s.At, "a sample has bytes, or shape and dtype, not both")
		case s.Bytes != nil:
			stored = s.Bytes.V
			before = stored
		case s.Shape != nil:
			size, dtype = el.shape(s.Shape, sc), el.errs.DType(s.DType)
			stored = el.bytesOf(size, dtype, s.At)
			before = stored
		default:
			el.fail(s.At, "a sample needs bytes, or shape and dtype")
		}
	}
	for _, t := range d.Transforms {
		switch {
		case t.V.Shape != nil:
			size = el.shape(t.V.Shape, sc)
		case size == nil:
			el.fail(t.Name.At, "transform %q needs a shape, as what comes before has none", t.Name.V)
		}
		if t.V.DType.Set {
			dtype = el.errs.DType(t.V.DType)
		}
		after := el.bytesOf(size, dtype, t.Name.At)
		out.Transform = max(out.Transform, before+after)
		before = after
	}
	if n := len(d.Transforms); n > 0 && !slices.Equal(size, in.Size[1:]) {
		el.fail(d.Transforms[n-1].Name.At, "the transforms end with shape %s, but input %q takes %s", tensor.SizeString(size), in.Name, tensor.SizeString(in.Size[1:]))
	}
	if ds := d.Dataset; ds != nil && ds.InMemory.V {
		if !ds.Samples.Set {
			el.fail(ds.InMemory.At, "in_memory needs samples, the number of samples")
		}
		n, err := tensor.MulBytes(ds.Samples.V, int64(stored))
		if err != nil {
			el.fail(ds.Samples.At, "%d samples of %v: %v", ds.Samples.V, stored, err)
		}
		out.Dataset = n
	}
	return out
}

// dataSource reads data.source: paths, or paths by input.
func (el *building) dataSource(v *spec.Value) map[string][]string {
	out := map[string][]string{}
	path := func(name string, v *spec.Value) {
		list := []*spec.Value{v}
		if v.Kind == spec.List && len(v.Items) > 0 {
			list = v.Items
		}
		for _, v := range list {
			if v.Kind != spec.Str || v.Str == "" {
				el.errs.Addf(v.Span, "must be the path of a file, or several, not %s", v.Describe())
				continue
			}
			out[name] = append(out[name], v.Str)
		}
	}
	if v.Kind != spec.Map {
		path("", v)
		return out
	}
	var names []string
	for _, in := range el.job.Inputs {
		names = append(names, in.Name)
	}
	for _, p := range v.Pairs {
		if !slices.Contains(names, p.Key.Str) {
			el.errs.Unknown(p.Key.Span, "input", p.Key.Str, names)
			continue
		}
		path(p.Key.Str, p.Value)
	}
	return out
}

func (el *building) bytesOf(size []int64, d tensor.DType, at spec.Span) tensor.Bytes {
	n, err := tensor.MulBytes(append(slices.Clone(size), d.Size())...)
	if err != nil {
		el.fail(at, "shape %s of %v: %v", tensor.SizeString(size), d, err)
	}
	return n
}
