package estimate

import (
	"sort"
	"strings"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// breakdown says what lives at the peak of allocated memory: by category, whose
// sum with the allocator's rounding is the peak, and by layer.
func (o *Outcome) breakdown(r *report.Report) {
	tr := o.Played.Trace
	var sums [trace.NumCategories]tensor.Bytes
	var requested tensor.Bytes
	layers := map[string]*report.Layer{}
	members := map[string]map[int32]bool{}
	for _, i := range allocsim.LiveAt(tr.Events, o.Free.PeakAllocated.Event) {
		e := &tr.Events[i]
		c := tr.Categories[e.ID]
		sums[c] += e.Bytes
		requested += e.Bytes
		path, kind := pattern(tr.Layers[e.Layer]), o.Played.Classes[e.Layer].Kind()
		key := path + " " + kind
		l := layers[key]
		if l == nil {
			l = &report.Layer{Layer: path, Kind: kind}
			layers[key], members[key] = l, map[int32]bool{}
		}
		members[key][e.Layer] = true
		l.TotalBytes += e.Bytes
		switch c {
		case trace.Parameters:
			l.ParametersBytes += e.Bytes
		case trace.Gradients:
			l.GradientsBytes += e.Bytes
		case trace.Activations:
			l.ActivationsBytes += e.Bytes
		default:
			l.OtherBytes += e.Bytes
		}
	}
	r.AtPeak = report.AtPeak{
		ParametersBytes:     sums[trace.Parameters],
		GradientsBytes:      sums[trace.Gradients],
		OptimizerStateBytes: sums[trace.OptimizerState],
		ActivationsBytes:    sums[trace.Activations],
		InputsBytes:         sums[trace.Inputs],
		TemporariesBytes:    sums[trace.Temporaries],
		WorkspaceBytes:      sums[trace.Workspace],
		RoundingBytes:       r.Peak.AllocatedBytes - requested,
	}
	r.Layers = make([]report.Layer, 0, len(layers))
	for key, l := range layers {
		l.Count = len(members[key])
		if len(members[key]) == 1 { // one of its kind: its own name
			for i := range members[key] {
				l.Layer = tr.Layers[i]
			}
		}
		r.Layers = append(r.Layers, *l)
	}
	sort.Slice(r.Layers, func(i, j int) bool {
		a, b := &r.Layers[i], &r.Layers[j]
		if a.TotalBytes != b.TotalBytes {
			return a.TotalBytes > b.TotalBytes
		}
		return a.Layer+" "+a.Kind < b.Layer+" "+b.Kind
	})
}

// pattern replaces the indices of a module path by stars, so that the layers of
// repeated blocks fall together.
func pattern(path string) string {
	if !strings.ContainsAny(path, "0123456789") {
		return path
	}
	parts := strings.Split(path, ".")
	for i, p := range parts {
		if strings.Trim(p, "0123456789") == "" {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, ".")
}
