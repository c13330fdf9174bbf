package cli

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/tensor"
)

// bounding is what the command line says of the limits of a job.
type bounding struct {
	memory string
	time   time.Duration
}

func (b *bounding) flags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&b.memory, limit.MemoryFlag, shortSize(limit.DefaultMemory), "memory that memplan itself may take for a job")
	f.DurationVar(&b.time, limit.TimeFlag, limit.DefaultTime, "time that memplan itself may take for a job; the training of run has no limit unless the flag is given")
}

// shortSize writes a size as the command line takes it.
func shortSize(n tensor.Bytes) string { return fmt.Sprintf("%dGiB", n/tensor.GiB) }

// begin reads the flags and watches the limits while the command runs.
func (b *bounding) begin(c *cobra.Command, s *Streams) error {
	memory, err := tensor.ParseBytes(b.memory)
	switch {
	case err != nil:
		return usagef("--%s: %w", limit.MemoryFlag, err)
	case memory < leastMemory:
		return usagef("--%s %s: must be at least %v", limit.MemoryFlag, b.memory, leastMemory)
	case b.time <= 0:
		return usagef("--%s %v: must be more than nothing, such as 90s or 10m", limit.TimeFlag, b.time)
	}
	most := limit.Limits{Memory: memory, Time: b.time}
	if c.Name() == "check" {
		if !c.Flags().Changed(limit.MemoryFlag) {
			most.Memory = limit.CheckMemory
		}
		if !c.Flags().Changed(limit.TimeFlag) {
			most.Work = limit.CheckWork
		}
	}
	s.guard = limit.NewGuard(most)
	lost := func(err error) {
		files.Abandon()
		fmt.Fprintf(s.Err, "memplan: %v\n", err)
		os.Exit(exitFailed)
	}
	if most := b.time; !executes(c) || c.Flags().Changed(limit.TimeFlag) { // what counts nothing is bounded, too
		if c.Name() == "check" {
			most *= checkTime
		}
		end := time.AfterFunc(most+overdue, func() { lost(limit.Late("the command", most)) })
		context.AfterFunc(c.Context(), func() { end.Stop() })
	}
	if executes(c) && !c.Flags().Changed(limit.MemoryFlag) { // what is trained may be large
		return nil
	}
	heap := int64(most.Memory)
	if c.Name() == "check" { // several at once
		heap *= int64(runtime.GOMAXPROCS(0))
	}
	if given := debug.SetMemoryLimit(-1); given > heap { // collect in time, whatever GOGC is
		debug.SetMemoryLimit(heap)
		context.AfterFunc(c.Context(), func() { debug.SetMemoryLimit(given) })
	}
	go s.guard.Watch(c.Context(), lost)
	return nil
}

// overdue is how much longer than its limit a command may take to say so.
const overdue = 3 * time.Second

// leastMemory is what memplan takes to do anything.
const leastMemory = 64 * tensor.MiB

// executes reports whether a command trains.
func executes(c *cobra.Command) bool { return c.Name() == "run" }

// bounded returns the budget of a command that computes one job.
func (s *Streams) bounded(ctx context.Context) *limit.Budget {
	if s.budget == nil && s.guard != nil {
		s.budget = s.guard.Budget(ctx)
	}
	return s.budget
}
