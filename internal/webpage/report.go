package webpage

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/tensor"
)

// OfReport is the page of an estimate.
func OfReport(r *report.Report, memory []Memory) *Page {
	p := &Page{Verdict: r.Verdict.Result, Title: r.Title(), Data: r, Memory: memory}
	p.Lines = append(p.Lines, report.Settings(r))
	p.Lines = append(p.Lines, strings.Split(r.Verdict.Reason, "\n")...)
	if a := r.Advice; a != nil {
		p.Lines = append(p.Lines, a.Batch())
	}
	peak := "Peak memory"
	if r.Verdict.Result != report.Fits {
		peak = "Peak memory if the GPU had no limit"
	}
	at := report.Where(r.Peak.Step, r.Peak.Phase, r.Peak.Op, r.Peak.Layer)
	p.First = []Table{{peak, []string{"", "bytes", ""}, [][]Cell{
		{Text("allocated"), Size("peak.allocated_bytes", r.Peak.AllocatedBytes), Text("in tensors: " + at)},
		{Text("reserved"), Size("peak.reserved_bytes", r.Peak.ReservedBytes), Text("held by PyTorch's caching allocator")},
		{Text("device"), Size("peak.device_bytes", r.Peak.DeviceBytes), Text("reserved + CUDA context")},
		{Text("usable"), Size("device.usable_bytes", r.Device.UsableBytes), Text("of " + r.Device.DisplayName)},
		{Text("headroom"), Size("verdict.headroom_bytes", r.Verdict.HeadroomBytes), Text("usable - reserved")},
	}}}
	var rows [][]Cell
	for _, s := range r.AtPeak.Shares() {
		name := "at_peak." + strings.ReplaceAll(s.Name, " ", "_") + "_bytes"
		rows = append(rows, []Cell{Text(s.Name), Size(name, s.Bytes), Text(share(s.Bytes, r.Peak.AllocatedBytes))})
	}
	p.Add("At the peak of allocated memory", []string{"category", "bytes", "share"}, rows...)
	p.ranks(r)
	p.layers(r)
	p.phases(r)
	p.advice(r)
	p.List("Warnings", r.Warnings)
	p.List("Not modelled", r.NotModelled)
	p.List("Uncertain", r.Doubts())
	return p
}

// ranks is the table of all processes, if they do different things.
func (p *Page) ranks(r *report.Report) {
	var rows [][]Cell
	for i := range r.Ranks {
		k := &r.Ranks[i]
		at := func(key string) string { return fmt.Sprintf("ranks.%d.%s", i, key) }
		rows = append(rows, []Cell{Text(fmt.Sprint(k.Rank)), {report.Count(k.Parameters), at("parameters"), k.Parameters}, Size(at("peak_allocated_bytes"), k.PeakAllocatedBytes),
			Size(at("peak_reserved_bytes"), k.PeakReservedBytes), Size(at("headroom_bytes"), k.HeadroomBytes), Text(k.Result)})
	}
	p.Add("Ranks", []string{"rank", "parameters", "allocated", "reserved", "headroom", "result"}, rows...)
	if len(rows) > 0 {
		p.Lines = append(p.Lines, fmt.Sprintf("the figures are those of rank %d; the table of ranks has all", *r.Train.Rank))
	}
}

// shownLayers is how many layers the table has; the JSON has all.
const shownLayers = 40

func (p *Page) layers(r *report.Report) {
	var rows [][]Cell
	for i := range r.Layers[:min(len(r.Layers), shownLayers)] {
		l := &r.Layers[i]
		name := l.Layer
		if name == "" {
			name = "(no module)"
		}
		at := func(key string) string { return fmt.Sprintf("layers.%d.%s_bytes", i, key) }
		rows = append(rows, []Cell{Text(name), Text(l.Kind), {fmt.Sprint(l.Count), fmt.Sprintf("layers.%d.count", i), int64(l.Count)}, Size(at("total"), l.TotalBytes),
			Size(at("parameters"), l.ParametersBytes), Size(at("gradients"), l.GradientsBytes), Size(at("activations"), l.ActivationsBytes), Size(at("other"), l.OtherBytes)})
	}
	p.Add("Layers at the peak", []string{"layer", "class", "count", "total", "parameters", "gradients", "activations", "other"}, rows...)
}

func (p *Page) phases(r *report.Report) {
	var rows [][]Cell
	for i, f := range r.Phases {
		rows = append(rows, []Cell{Text(f.Phase), Size(fmt.Sprintf("phases.%d.peak_allocated_bytes", i), f.PeakAllocatedBytes),
			Size(fmt.Sprintf("phases.%d.peak_reserved_bytes", i), f.PeakReservedBytes)})
	}
	p.Add("Peaks by phase", []string{"phase", "allocated", "reserved"}, rows...)
	rows = nil
	for i, s := range r.Steps {
		at := func(key string) string { return fmt.Sprintf("steps.%d.%s_bytes", i, key) }
		rows = append(rows, []Cell{Text(fmt.Sprint(s.Step)), Size(at("peak_allocated"), s.PeakAllocatedBytes), Size(at("peak_reserved"), s.PeakReservedBytes),
			Size(at("end_allocated"), s.EndAllocatedBytes), Size(at("end_reserved"), s.EndReservedBytes)})
	}
	p.Add("Peaks by step", []string{"step", "allocated", "reserved", "allocated at the end", "reserved at the end"}, rows...)
}

// advice are the changes and the batch curve.
func (p *Page) advice(r *report.Report) {
	var rows [][]Cell
	if a := r.Advice; a != nil {
		for i := range a.Changes {
			c := &a.Changes[i]
			rows = append(rows, []Cell{Text(c.Change), Size(fmt.Sprintf("advice.changes.%d.peak_reserved_bytes", i), c.PeakReservedBytes), Text(c.Result), Text(c.Numerics), Text(strings.Join(c.Set, "\n"))})
		}
	}
	p.Add("Changes", []string{"change", "peak reserved", "result", "changes numbers", "--set"}, rows...)
	rows = nil
	for i, c := range r.Curve {
		rows = append(rows, []Cell{Text(fmt.Sprint(c.BatchSize)), Size(fmt.Sprintf("curve.%d.allocated_bytes", i), c.AllocatedBytes),
			Size(fmt.Sprintf("curve.%d.reserved_bytes", i), c.ReservedBytes), Text(c.Result)})
	}
	p.Add("Peak by batch size", []string{"batch size", "allocated", "reserved", "result"}, rows...)
}

// OfRun is the page of a job that was executed, with the events that were predicted.
func OfRun(r *report.Run, memory []Memory) *Page {
	p := &Page{Verdict: r.Verdict(), Title: fmt.Sprintf("%s, executed by %s", r.Spec, r.Backend), Data: r, Memory: memory}
	if r.Device != r.Backend {
		p.Title += fmt.Sprintf(" (%s)", r.Device)
	}
	if r.Trace.Equal {
		p.Lines = append(p.Lines, fmt.Sprintf("all %d allocations and frees are the predicted ones, in their order", r.Trace.Events))
	} else if d := r.Trace.FirstDifference; d != "" {
		p.Lines = append(p.Lines, "the allocations differ: "+d)
	}
	var rows [][]Cell
	for _, x := range []struct {
		name, key string
		p, m      tensor.Bytes
	}{
		{"allocated", "allocated_bytes", r.Predicted.AllocatedBytes, r.Measured.AllocatedBytes},
		{"reserved", "reserved_bytes", r.Predicted.ReservedBytes, r.Measured.ReservedBytes},
		{"device", "device_bytes", r.Predicted.DeviceBytes, r.Measured.DeviceBytes},
	} {
		if x.m > 0 {
			rows = append(rows, []Cell{Text(x.name), Size("predicted."+x.key, x.p), Size("measured."+x.key, x.m), Text(fmt.Sprintf("%.2f %%", 100*report.Difference(x.p, x.m)))})
		}
	}
	p.First = []Table{{"Peak memory", []string{"", "predicted", "measured", "difference"}, rows}}
	rows = nil
	for i, ms := range r.StepMS {
		loss := ""
		if i < len(r.Losses) {
			loss = fmt.Sprintf("%.6g", float64(r.Losses[i]))
		}
		rows = append(rows, []Cell{Text(fmt.Sprint(i + 1)), Text(loss), Text(fmt.Sprintf("%.3f", ms))})
	}
	p.Add("Steps", []string{"step", "loss", "ms"}, rows[:min(len(rows), shownSteps)]...)
	p.List("Notes", r.Warnings)
	return p
}

// shownSteps is how many steps of a run the table has; the JSON has all.
const shownSteps = 200

// OfDiff is the page of two jobs. The charts of the figures are those of estimates.
func OfDiff(d *report.Diff, memory []Memory) *Page {
	p := &Page{Title: fmt.Sprintf("%s and %s", d.A.Source, d.B.Source), Data: d, Memory: memory}
	for _, s := range []*report.DiffSide{&d.A, &d.B} {
		p.Lines = append(p.Lines, fmt.Sprintf("%s  %s: %s on %s", s.Result, s.Source, s.Model, s.Device))
	}
	head := []string{"", "A", "B", "B - A"}
	rows := func(key string, of []report.DiffBytes) (out [][]Cell) {
		for i := range of {
			x := &of[i]
			out = append(out, diffRow(strings.ReplaceAll(strings.TrimSuffix(x.Name, "_bytes"), "_", " "), fmt.Sprintf("%s.%d", key, i), x))
		}
		return out
	}
	p.First = []Table{{"Peak memory", head, rows("peak", d.Peak)}}
	var texts [][]Cell
	for _, s := range d.Settings {
		texts = append(texts, []Cell{Text(s.Name), Text(s.A), Text(s.B)})
	}
	p.Add("Settings that differ", []string{"", "A", "B"}, texts...)
	p.Add("At the peak of allocated memory", head, rows("at_peak", d.AtPeak)...)
	p.Add("Phases", head, rows("phases", d.Phases)...)
	p.Add("Totals of a step", head, rows("totals", d.Totals)...)
	var layers [][]Cell
	for i := range d.Layers[:min(len(d.Layers), shownLayers)] {
		l := &d.Layers[i]
		layers = append(layers, diffRow(l.Layer+" "+l.Kind, fmt.Sprintf("layers.%d.total", i), &l.Total))
	}
	p.Add("Layers that differ", head, layers...)
	var missing []string
	for _, m := range d.Missing {
		missing = append(missing, fmt.Sprintf("%s: %s", m.In, m.Text))
	}
	p.List("Not modelled", missing)
	return p
}

func diffRow(label, name string, x *report.DiffBytes) []Cell {
	return []Cell{Text(label), Size(name+".a_bytes", x.A), Size(name+".b_bytes", x.B), Size(name+".delta_bytes", x.Delta)}
}

func share(part, whole tensor.Bytes) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}
