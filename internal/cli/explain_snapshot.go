package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/oom"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/snapshot"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/webpage"
)

// isPickle reports whether a file is a pickle of protocol 2 or later.
func isPickle(text []byte) bool {
	return len(text) > 1 && text[0] == 0x80 && text[1] >= 2 && text[1] <= 9
}

// explainedDevice is one device of a snapshot in JSON.
type explainedDevice struct {
	*snapshot.Explanation
	Causes []oom.Finding    `json:"causes,omitempty"`
	Trials []snapshot.Trial `json:"replays"`
}

// explainSnapshot explains a snapshot of PyTorch's allocator.
func explainSnapshot(c *cobra.Command, s *Streams, name string, text []byte, o *source, format string, shown *pictures) error {
	snap, err := snapshot.Read(bytes.NewReader(text))
	if err != nil {
		return usagef("%s: %w", name, err)
	}
	if len(snap.Devices) == 0 {
		return usagef("%s: PyTorch held no GPU memory when this snapshot was made", name)
	}
	torch, err := releaseOf(o.torch)
	if err != nil {
		return err
	}
	further, err := o.circumstances(c, snap.Config, torch)
	if err != nil {
		return err
	}
	m := s.bounded(c.Context()).Meter()
	defer m.Close()
	var all []explainedDevice
	for i := range snap.Devices {
		x, err := explainMemory(snap, &snap.Devices[i], torch, further, m)
		if err != nil {
			return usagef("%s: %w", name, err)
		}
		all = append(all, *x)
	}
	if err := shown.write(s, func() (*webpage.Page, error) { return pageOfDump(name, snap, all), nil }); err != nil || shown.alone() {
		return err
	}
	if format == "json" {
		return report.JSON(s.Out, explanation(snap, all))
	}
	color, err := colored(c, s)
	if err != nil {
		return err
	}
	for i := range all {
		if i > 0 {
			fmt.Fprintln(s.Out)
		}
		width := cmp.Or(s.terminal(), lineWidth)
		if err := s.people(func(w io.Writer) error { return writeSnapshot(w, name, &all[i], width, color) }); err != nil {
			return err
		}
	}
	return nil
}

// explanation is what JSON says of a snapshot.
func explanation(snap *snapshot.Snapshot, all []explainedDevice) map[string]any {
	return map[string]any{"memplan_explanation": 1, "alloc_conf": snap.Config, "devices": all}
}

// circumstances are those that the flags ask for.
func (o *source) circumstances(c *cobra.Command, recorded string, torch torchver.Version) ([]snapshot.Circumstances, error) {
	var out []snapshot.Circumstances
	conf := recorded
	if c.Flags().Changed("alloc-conf") {
		conf = o.allocConf
		out = append(out, snapshot.Circumstances{Name: "--alloc-conf " + conf, AllocConf: conf, Torch: torch})
	}
	if c.Flags().Changed("gpu") {
		g, err := device.Lookup(o.gpu)
		if err != nil {
			return nil, usagef("--gpu: %w", err)
		}
		out = append(out, snapshot.Circumstances{Name: "--gpu " + o.gpu, AllocConf: conf, Capacity: g.Usable(), Torch: torch})
	}
	if c.Flags().Changed("memory") {
		n, err := tensor.ParseBytes(o.memory)
		if err != nil || n == 0 {
			return nil, usagef("--memory %s: must be a size, such as 24GiB", o.memory)
		}
		out = append(out, snapshot.Circumstances{Name: "--memory " + o.memory, AllocConf: conf, Capacity: n, Torch: torch})
	}
	return out, nil
}

func explainMemory(snap *snapshot.Snapshot, d *snapshot.Device, torch torchver.Version, further []snapshot.Circumstances, m *limit.Meter) (*explainedDevice, error) {
	x, err := d.Explain()
	if err != nil {
		return nil, err
	}
	trials, err := d.Trials(snapshot.Circumstances{AllocConf: snap.Config, Torch: torch}, further, m)
	if err != nil {
		return nil, err
	}
	out := &explainedDevice{Explanation: x, Trials: trials}
	if f := x.Failure; f != nil {
		out.Causes = oom.Diagnose(&oom.Failure{
			Kind: oom.Device, GPU: d.Index, Rank: -1, Tried: f.Bytes, Total: f.Available, Free: f.Free,
			Allowed: -1, InUse: -1, Allocated: x.Allocated, PrivatePools: -1, Reserved: x.Reserved,
		})
	}
	return out, nil
}

// writeSnapshot prints what a device's memory was used for.
func writeSnapshot(w io.Writer, name string, x *explainedDevice, width int, ink report.Ink) error {
	p := func(format string, args ...any) { printable.Fprintf(w, format, args...) }
	p("%s, cuda:%d: ", name, x.Device)
	if f := x.Failure; f != nil {
		p("%s\n  tried to allocate %v, %v free on the device\n  at %s\n", ink.Verdict(report.OOMs, "out of memory ("+string(x.Causes[0].Cause)+")"), f.Bytes, f.Free, &f.Where)
	} else {
		p("no request failed in the %d recorded events; memory at the end\n", x.Events)
	}
	p("\n  in use    %12v", x.Allocated)
	if x.Failure != nil {
		p(" of %v that PyTorch could reserve", x.Failure.Available)
	}
	p("\n  cached    %12v in %d blocks, the largest %v; %v in segments that are not in use\n", x.Cached.Bytes, x.Cached.Blocks, x.Cached.Largest, x.Cached.Whole)
	p("  reserved  %12v\n", x.Reserved)
	if !x.Complete {
		p("\n  The record begins when memory was in use already. Where those blocks were allocated is not known;\n" +
			"  the replays below begin with them where they were.\n")
	}
	for _, cause := range x.Causes {
		p("\n%s: %s\n", ink.Bold(string(cause.Cause)), cause.Why)
	}
	p("\n")
	if err := writeHolders(w, x, width); err != nil {
		return err
	}
	if len(x.Leaks) > 0 {
		p("\n%s: blocks that were kept each time the program came to the line\n\n", ink.Bold("Grows"))
		t := &report.Table{Header: []string{"bytes", "kept", "of", "where"}, Numbers: []bool{true, true, true}, Width: width}
		for _, l := range x.Leaks[:min(len(x.Leaks), shownHolders)] {
			t.Rows = append(t.Rows, []string{l.Bytes.String(), fmt.Sprint(l.Turns), fmt.Sprint(l.Of), where(&l.Where)})
		}
		if err := t.Write(w); err != nil {
			return err
		}
	}
	if err := writeStuck(w, x, width); err != nil {
		return err
	}
	p("\n")
	t := &report.Table{Header: []string{"replayed", "available", "peak reserved", "result"}, Numbers: []bool{false, true, true}, Width: width}
	for _, r := range x.Trials {
		available, result := "no limit", "no request fails"
		if r.Capacity > 0 {
			available = r.Capacity.String()
		}
		if r.OOM {
			result = "OUT OF MEMORY"
		}
		t.Rows = append(t.Rows, []string{r.Name, available, r.PeakReserved.String(), result})
	}
	return t.Write(w)
}

// writeStuck prints the segments with the most cached memory that cannot be given back, if there is much.
func writeStuck(w io.Writer, x *explainedDevice, width int) error {
	const shown = 5
	if stuck := x.Cached.Bytes - x.Cached.Whole; stuck < x.Reserved/20 {
		return nil
	}
	printable.Fprintf(w, "\nSegments with cached memory that cannot be given back, as a part is in use\n\n")
	t := &report.Table{Header: []string{"segment", "cached", "largest", "blocks in use", "most is held by"}, Numbers: []bool{true, true, true, true}, Width: width}
	for _, s := range x.Stuck[:min(len(x.Stuck), shown)] {
		t.Rows = append(t.Rows, []string{s.Bytes.String(), s.Cached.String(), s.Largest.String(), fmt.Sprint(s.Blocks), s.Where.String()})
	}
	if n := len(x.Stuck) - shown; n > 0 {
		var rest snapshot.Stuck
		for _, s := range x.Stuck[shown:] {
			rest.Bytes += s.Bytes
			rest.Cached += s.Cached
			rest.Blocks += s.Blocks
		}
		t.Rows = append(t.Rows, []string{rest.Bytes.String(), rest.Cached.String(), "", fmt.Sprint(rest.Blocks), fmt.Sprintf("%d other segments", n)})
	}
	return t.Write(w)
}

// shownHolders is how many rows of a table are printed; JSON has all.
const shownHolders = 12

func writeHolders(w io.Writer, x *explainedDevice, width int) error {
	t := &report.Table{Header: []string{"in use", "share", "blocks", "allocated at"}, Numbers: []bool{true, true, true}, Width: width}
	var rest snapshot.Holder
	for i, h := range x.Holders {
		if i >= shownHolders {
			rest.Bytes += h.Bytes
			rest.Blocks += h.Blocks
			continue
		}
		t.Rows = append(t.Rows, []string{h.Bytes.String(), share(h.Bytes, x.Allocated), fmt.Sprint(h.Blocks), where(&h.Where)})
	}
	if rest.Blocks > 0 {
		t.Rows = append(t.Rows, []string{rest.Bytes.String(), share(rest.Bytes, x.Allocated), fmt.Sprint(rest.Blocks),
			fmt.Sprintf("%d other places", len(x.Holders)-shownHolders)})
	}
	return t.Write(w)
}

func share(n, of tensor.Bytes) string {
	if of == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of))
}

// where is a place with the lines that led there.
func where(p *snapshot.Place) string {
	if len(p.Lines) < 2 {
		return p.String()
	}
	return p.String() + ", from " + strings.Join(p.Lines[1:], ", ")
}
