package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/record"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/plan"
)

func newSimulate(s *Streams) *cobra.Command {
	var (
		format, conf, capacity string
		torch                  string
		series, drawMap        bool
		at                     int
	)
	c := &cobra.Command{
		Use:   "simulate FILE",
		Short: "Replay a recorded trace of allocations in the caching allocator",
		Long: `Simulate replays a trace (JSON with an "events" list; see memplan export trace) in
a model of PyTorch's caching allocator and prints its statistics. FILE may be -
for standard input. --alloc-conf, --torch and --capacity override the values in the trace;
occupied_bytes of the trace are subtracted from the capacity. A request that fails
is skipped, and the replay continues, so that all failures are reported.
--map draws the allocator's segments and blocks: # is in use, . is cached, : is a
mixture of both.`,
		Example: `  memplan export trace preset:lenet | memplan simulate -
  memplan export trace preset:lenet | memplan simulate - --map --at 100`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("simulate needs one FILE (or -), not %d", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("format", format, textJSON); err != nil {
				return err
			}
			if format == "json" && drawMap {
				return usagef("--map is text; it does not go with --format json")
			}
			f, err := readTrace(c, s, args[0])
			if err != nil {
				return err
			}
			if c.Flags().Changed("alloc-conf") {
				f.Config = conf
			}
			if c.Flags().Changed("torch") {
				v, err := releaseOf(torch)
				if err != nil {
					return err
				}
				f.Torch = v.String()
			}
			if c.Flags().Changed("capacity") {
				if f.Capacity, err = tensor.ParseBytes(capacity); err != nil {
					return usagef("--capacity: %w", err)
				}
				if f.Capacity == 0 {
					return usagef("--capacity: must be more than nothing")
				}
			}
			events := f.Events
			if c.Flags().Changed("at") {
				if at < 0 || at >= len(events) {
					return usagef("--at %d: the trace has events 0 to %d", at, len(events)-1)
				}
				events = events[:at+1]
			}
			f.Events = events
			r, err := plan.Replay(limit.In(c.Context(), s.bounded(c.Context())), f, plan.ReplayOptions{Series: series})
			met, conf := (*limit.Error)(nil), (*allocsim.ConfigError)(nil)
			if errors.As(err, &met) || errors.As(err, &conf) {
				return err
			} else if err != nil {
				return usagef("%s: %w", args[0], err)
			}
			if format == "json" {
				return report.JSON(s.Out, r.Simulation)
			}
			if err := s.people(func(w io.Writer) error { return writeSimulation(w, f, r, s.terminal()) }); err != nil {
				return err
			}
			if !drawMap {
				return nil
			}
			fmt.Fprintln(s.Out)
			return r.WriteMap(s.Out)
		},
	}
	f := c.Flags()
	f.StringVar(&format, "format", "text", "text or json")
	completeFlag(c, "format", func() []string { return textJSON })
	f.StringVar(&conf, "alloc-conf", "", "PYTORCH_CUDA_ALLOC_CONF, in place of the trace's")
	torchFlag(c, &torch)
	f.StringVar(&capacity, "capacity", "", "memory of the device, such as 24GiB, in place of the trace's")
	f.BoolVar(&series, "series", false, "list reserved and allocated memory after each event")
	f.BoolVar(&drawMap, "map", false, "draw the allocator's segments and blocks")
	f.IntVar(&at, "at", 0, "stop after this event (default: the last)")
	return c
}

// maxTrace and maxLog bound what is read of a trace and of a log.
const (
	maxTrace = 1 << 30
	maxLog   = 256 << 20
)

func readTrace(c *cobra.Command, s *Streams, name string) (*plan.Trace, error) {
	text, err := s.read(name, maxTrace)
	if err != nil {
		return nil, err
	}
	if record.Is(text) {
		r, err := new(source).recorded(c, s, name, text)
		if err != nil {
			return nil, err
		}
		return plan.FromRecipe(r).Trace(within(c, r))
	}
	if isPickle(text) {
		return nil, usagef("%s is a snapshot, not a trace; memplan explain %s replays it", name, printable.File(name))
	}
	f, err := plan.ReadTrace(bytes.NewReader(text))
	if err != nil && bytes.HasPrefix(bytes.TrimSpace(text), []byte("memplan:")) {
		return nil, usagef("%s is a spec, not a trace; write memplan export trace %s | memplan simulate -", name, printable.File(name))
	}
	if err != nil {
		return nil, usagef("%s: %w", name, err)
	}
	return f, nil
}

// writeSimulation prints the outcome for people.
func writeSimulation(w io.Writer, f *plan.Trace, r *plan.Replayed, width int) error {
	sim := r.Simulation
	t := &report.Table{Header: []string{"Memory", "at the end", "peak", "peak bytes"}, Numbers: []bool{false, true, true, true}, Width: width, Spare: []int{3}}
	for _, l := range []struct {
		name  string
		level allocsim.Level
	}{{"allocated", sim.Allocated}, {"reserved", sim.Reserved}, {"active", sim.Active}, {"requested", sim.Requested}, {"inactive split", sim.InactiveSplit}} {
		t.Rows = append(t.Rows, []string{l.name, l.level.Current.String(), l.level.Peak.String(), fmt.Sprint(int64(l.level.Peak))})
	}
	if err := t.Write(w); err != nil {
		return err
	}
	_, err := printable.Fprintf(w, "\n  %d events, %d segments, %d device allocations, %d device frees, %d retries, %d out of memory\n",
		r.Events, sim.Segments, sim.NumDeviceAlloc, sim.NumDeviceFree, sim.NumAllocRetries, sim.NumOOMs)
	const shown = 3
	for i, o := range r.Failures {
		if i == shown {
			_, err = printable.Fprintf(w, "  and %d more; a program would have failed at the first\n", len(r.Failures)-shown)
			break
		}
		e := &f.Events[o.Event]
		place := ""
		if len(f.Ops) > 0 {
			place = " (" + report.Where(int(e.Step), e.Phase.String(), f.Ops[e.Op], f.Layers[e.Layer]) + ")"
		}
		if err == nil {
			_, err = printable.Fprintf(w, "  event %d%s: %v\n", o.Event, place, o.Err)
		}
	}
	if sim.Series != nil && err == nil {
		_, err = printable.Fprintf(w, "\n%10s %16s %16s\n", "event", "allocated", "reserved")
		for i := range sim.Series.Allocated {
			if err == nil {
				_, err = printable.Fprintf(w, "%10d %16d %16d\n", i, int64(sim.Series.Allocated[i]), int64(sim.Series.Reserved[i]))
			}
		}
	}
	return err
}
