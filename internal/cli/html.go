package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/snapshot"
	"github.com/memplan/memplan/internal/webpage"
	"github.com/memplan/memplan/plan"
)

// pictures are the files of --html and --svg; "" is none.
type pictures struct{ html, svg string }

func (p *pictures) flags(c *cobra.Command) {
	c.Flags().StringVar(&p.html, "html", "", "also write a page for browsers to this file; - is standard output, without other output")
	c.Flags().StringVar(&p.svg, "svg", "", "also write a picture, such as for a comment, to this file; - is standard output, without other output")
}

// asked is the flag that asks for a picture, "" if none does.
func (p *pictures) asked() string {
	switch {
	case p.html != "":
		return "html"
	case p.svg != "":
		return "svg"
	}
	return ""
}

// alone reports whether a picture is all that goes to standard output.
func (p *pictures) alone() bool { return p.html == "-" || p.svg == "-" }

// write writes the files that the flags name.
func (p *pictures) write(s *Streams, of func() (*webpage.Page, error)) error {
	if p.asked() == "" {
		return nil
	}
	if p.html == "-" && p.svg == "-" {
		return usagef("--html and --svg cannot both be standard output")
	}
	page, err := of()
	if err != nil {
		return err
	}
	for _, f := range []struct {
		flag, path string
		write      func(io.Writer, *webpage.Page) error
	}{{"html", p.html, webpage.Write}, {"svg", p.svg, webpage.WriteSVG}} {
		if f.path == "" {
			continue
		}
		err := writeFlag(s, f.flag, f.path, func(w io.Writer) error { return f.write(w, page) })
		if errors.Is(err, webpage.ErrNoEvents) {
			return usagef("--%s: %w", f.flag, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// pageOf is the page of an estimate.
func pageOf(o *plan.Estimate) (*webpage.Page, error) {
	memory, err := memoryOf(o.TraceToPeak(), o.Report)
	if err != nil {
		return nil, err
	}
	return webpage.OfReport(o.Report, memory), nil
}

// memoryOf replays a job without a limit and, if that makes a difference, on its GPU.
func memoryOf(onGPU *plan.Trace, r *report.Report) ([]webpage.Memory, error) {
	free := *onGPU
	free.Capacity, free.Occupied, free.MemoryFraction = 0, 0, nil
	config, err := allocatorOf(onGPU)
	if err != nil {
		return nil, err
	}
	usable := r.Device.UsableBytes
	config.MemoryFraction = nil
	all, err := snapshot.Of(&free, config)
	if err != nil {
		return nil, err
	}
	memory := []webpage.Memory{{Name: "without a limit", Device: &all.Devices[0], Limit: max(usable, 0), OOM: -1}}
	if r.Verdict.Result == report.Fits {
		return memory, nil
	}
	real, err := dumpOf(onGPU)
	if err != nil {
		return nil, err
	}
	d := &real.Devices[0]
	for i := range d.Events {
		if d.Events[i].Action == snapshot.OOM {
			memory[0].OOM = d.Events[i].Microsecs
		}
	}
	return append(memory, webpage.Memory{Name: "on the GPU", Device: d, Limit: max(usable, 0), OOM: -1, Again: true}), nil
}

// pageOfDump is the page of a snapshot of PyTorch's allocator.
func pageOfDump(name string, snap *snapshot.Snapshot, all []explainedDevice) *webpage.Page {
	all = firstRows(all)
	p := &webpage.Page{Title: name, Data: explanation(snap, all)}
	for i := range all {
		x := &all[i]
		at := func(format string, args ...any) string {
			return fmt.Sprintf("devices.%d.", i) + fmt.Sprintf(format, args...)
		}
		m := webpage.Memory{Name: fmt.Sprintf("cuda:%d", x.Device), Device: &snap.Devices[i], OOM: -1}
		line := m.Name + ": no request failed in the recorded events"
		if f := x.Failure; f != nil {
			m.Limit, p.Verdict = f.Available, report.OOMs
			line = fmt.Sprintf("%s: out of memory: tried to allocate %v, %v free on the device, at %s", m.Name, f.Bytes, f.Free, &f.Where)
		}
		p.Lines, p.Memory = append(p.Lines, line), append(p.Memory, m)
		p.First = append(p.First, webpage.Table{Title: "Memory of " + m.Name, Head: []string{"", "bytes"}, Rows: [][]webpage.Cell{
			{webpage.Text("in use"), webpage.Size(at("allocated_bytes"), x.Allocated)},
			{webpage.Text("cached"), webpage.Size(at("cached.bytes"), x.Cached.Bytes)},
			{webpage.Text("largest cached block"), webpage.Size(at("cached.largest_bytes"), x.Cached.Largest)},
			{webpage.Text("reserved"), webpage.Size(at("reserved_bytes"), x.Reserved)},
		}})
		var causes []string
		for _, c := range x.Causes {
			causes = append(causes, fmt.Sprintf("%s: %s", c.Cause, c.Why))
		}
		p.List("Causes, "+m.Name, causes)
		var holders, leaks, trials [][]webpage.Cell
		for k, h := range x.Holders {
			holders = append(holders, []webpage.Cell{webpage.Text(where(&h.Where)), webpage.Size(at("holders.%d.bytes", k), h.Bytes), webpage.Text(share(h.Bytes, x.Allocated)), webpage.Text(fmt.Sprint(h.Blocks))})
		}
		for k, l := range x.Leaks {
			leaks = append(leaks, []webpage.Cell{webpage.Text(where(&l.Where)), webpage.Size(at("leaks.%d.bytes", k), l.Bytes), webpage.Text(fmt.Sprintf("%d of %d", l.Turns, l.Of))})
		}
		for k, r := range x.Trials {
			result := "no request fails"
			if r.OOM {
				result = "OUT OF MEMORY"
			}
			trials = append(trials, []webpage.Cell{webpage.Text(r.Name), webpage.Size(at("replays.%d.peak_reserved_bytes", k), r.PeakReserved), webpage.Text(result)})
		}
		p.Add("In use on "+m.Name, []string{"allocated at", "in use", "share", "blocks"}, holders...)
		p.Add("Grows on "+m.Name, []string{"allocated at", "bytes", "kept"}, leaks...)
		p.Add("Replays of "+m.Name, []string{"", "peak reserved", "result"}, trials...)
	}
	return p
}

// shownOnPage is how many rows of a table a page has; those of a snapshot are as many in its JSON, which
// --format json prints whole.
const shownOnPage = 40

// firstRows are explanations with as many rows of each list as a page has.
func firstRows(all []explainedDevice) []explainedDevice {
	out := slices.Clone(all)
	for i := range out {
		x := *out[i].Explanation
		x.Holders = x.Holders[:min(len(x.Holders), shownOnPage)]
		x.Leaks = x.Leaks[:min(len(x.Leaks), shownOnPage)]
		x.Stuck = x.Stuck[:min(len(x.Stuck), shownOnPage)]
		out[i].Explanation = &x
	}
	return out
}
