package cli

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/exporttorch"
	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/perfetto"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/snapshot"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
	"github.com/memplan/memplan/plan"
)

func newExport(s *Streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "export",
		Short: "Write a job in another form: a PyTorch script, a trace of allocations",
		Example: `  memplan export torch preset:lenet
  memplan export trace preset:mlp --text`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("export needs a form: torch or trace")
			}
			return usagef("unknown form %q; allowed are torch and trace", args[0])
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	c.AddCommand(newExportTorch(s), newExportTrace(s))
	return c
}

func newExportTorch(s *Streams) *cobra.Command {
	var (
		src source
		out string
	)
	c := &cobra.Command{
		Use:   "torch [SPEC | preset:NAME]",
		Short: "Print the PyTorch training script that a spec means",
		Long: `Print the PyTorch training script that a spec means. The script does not need
memplan. On a GPU it prints the peaks of each step as JSON.`,
		Example: `  memplan export torch preset:lenet
  memplan export torch preset:gpt --batch-size 2 --set params.layers=2`,
		Args: atMost(1, "export torch takes one SPEC"),
		RunE: func(c *cobra.Command, args []string) error {
			j, err := src.job(c, s, args)
			if err == nil {
				err = ofSpec(j)
			}
			if err != nil {
				return err
			}
			for _, n := range j.NotModelled {
				if _, err := printable.Fprintf(s.Err, "memplan: not in the script: %s\n", n); err != nil {
					return err
				}
			}
			return writeTo(s, out, func(w io.Writer) error {
				if err := engine.InferStages(nil, j.Program, j.Machine.Env); err != nil {
					return err
				}
				return exporttorch.Write(w, j.Program, scriptOptions(j))
			})
		},
	}
	src.flags(c)
	outFile(c, &out)
	return c
}

// scriptOptions are what of a job its program does not say.
func scriptOptions(j *estimate.Job) exporttorch.Options {
	m := j.Machine
	return exporttorch.Options{Steps: int(j.Spec.Train.Steps.V), AllocConf: m.ConfText, MemoryFraction: m.Fraction}
}

func newExportTrace(s *Streams) *cobra.Command {
	var (
		src    source
		out    string
		format string
		text   bool
	)
	c := &cobra.Command{
		Use:   "trace [SPEC | preset:NAME]",
		Short: "Write every allocation and free of a job, for memplan simulate, memory_viz or Perfetto",
		Long: `Write every allocation and free of a job. Formats:

  json      a trace, which memplan simulate replays
  text      one line for each event
  snapshot  what torch.cuda.memory._dump_snapshot writes, for PyTorch's memory_viz
            (pytorch.org/memory_viz) and memplan explain
  perfetto  a trace of events for ui.perfetto.dev: memory by category, phases, modules

If the job does not fit, snapshot and perfetto end with the request that fails. Neither has
times: an event takes a microsecond.`,
		Example: `  memplan export trace preset:lenet --out-file lenet.json
  memplan export trace preset:lenet --format snapshot --out-file lenet.pickle
  memplan export trace preset:mlp --format text --steps 1`,
		Args: atMost(1, "export trace takes one SPEC"),
		RunE: func(c *cobra.Command, args []string) error {
			if text {
				if c.Flags().Changed("format") && format != "text" {
					return usagef("--text is --format text; it does not go with --format %s", format)
				}
				format = "text"
			}
			if err := oneOf("format", format, traceFormats); err != nil {
				return err
			}
			r, err := src.recipe(c, s, args)
			if err != nil {
				return err
			}
			t, err := plan.FromRecipe(r).Trace(within(c, r))
			if err != nil {
				return err
			}
			return writeTo(s, out, func(w io.Writer) error {
				switch format {
				case "text":
					return trace.WriteText(w, &t.Trace)
				case "snapshot":
					return writeDump(w, t)
				case "perfetto":
					return writePerfetto(w, t)
				}
				return plan.WriteTrace(w, t)
			})
		},
	}
	src.flags(c)
	outFile(c, &out)
	f := c.Flags()
	f.StringVar(&format, "format", "json", "json, text, snapshot or perfetto")
	completeFlag(c, "format", func() []string { return traceFormats })
	f.BoolVar(&text, "text", false, "the same as --format text")
	return c
}

var traceFormats = []string{"json", "text", "snapshot", "perfetto"}

// writeDump writes a trace as PyTorch dumps its allocator.
func writeDump(w io.Writer, t *plan.Trace) error {
	snap, err := dumpOf(t)
	if err != nil {
		return err
	}
	return snap.Write(w)
}

// dumpOf replays a trace with the allocator's configuration that it has.
func dumpOf(t *plan.Trace) (*snapshot.Snapshot, error) {
	config, err := allocatorOf(t)
	if err != nil {
		return nil, err
	}
	return snapshot.Of(t, config)
}

// writePerfetto writes a trace for Perfetto.
func writePerfetto(w io.Writer, t *plan.Trace) error {
	config, err := allocatorOf(t)
	if err != nil {
		return err
	}
	return perfetto.Write(w, t, config)
}

// allocatorOf is the allocator's configuration of a trace.
func allocatorOf(t *plan.Trace) (allocsim.Config, error) {
	version := torchver.Default
	if t.Torch != "" {
		var err error
		if version, err = torchver.Parse(t.Torch); err != nil {
			return allocsim.Config{}, err
		}
	}
	return allocsim.ParseConfig(t.Config, version)
}

func outFile(c *cobra.Command, out *string) {
	c.Flags().StringVar(out, "out-file", "", "write to this file instead of standard output")
}

// writeTo runs f on standard output, or on a file (see files.Write).
func writeTo(s *Streams, path string, f func(io.Writer) error) error {
	return writeFlag(s, "out-file", path, f)
}

// writeFlag is writeTo of the file that a flag names.
func writeFlag(s *Streams, flag, path string, f func(io.Writer) error) error {
	if path == "" || path == "-" {
		return f(s.Out)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return usagef("--%s %s is a directory", flag, path)
	}
	return files.Write(path, f)
}
