package cli

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/exporttorch"
	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/printable"
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
			if err != nil {
				return err
			}
			for _, n := range j.NotModelled {
				if _, err := printable.Fprintf(s.Err, "memplan: not in the script: %s\n", n); err != nil {
					return err
				}
			}
			return writeTo(s, out, func(w io.Writer) error {
				return exporttorch.Write(w, j.Program, exporttorch.Options{Steps: int(j.Spec.Train.Steps.V)})
			})
		},
	}
	src.flags(c)
	outFile(c, &out)
	return c
}

func newExportTrace(s *Streams) *cobra.Command {
	var (
		src  source
		out  string
		text bool
	)
	c := &cobra.Command{
		Use:   "trace [SPEC | preset:NAME]",
		Short: "Print every allocation and free of a job, as input of memplan simulate or as text",
		Example: `  memplan export trace preset:lenet --out-file lenet.json
  memplan export trace preset:mlp --text --steps 1`,
		Args: atMost(1, "export trace takes one SPEC"),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := src.recipe(c, s, args)
			if err != nil {
				return err
			}
			t, err := plan.FromRecipe(r).Trace(within(c, r))
			if err != nil {
				return err
			}
			return writeTo(s, out, func(w io.Writer) error {
				if text {
					return trace.WriteText(w, &t.Trace)
				}
				return plan.WriteTrace(w, t)
			})
		},
	}
	src.flags(c)
	outFile(c, &out)
	c.Flags().BoolVar(&text, "text", false, "print text for people, one event per line")
	return c
}

func outFile(c *cobra.Command, out *string) {
	c.Flags().StringVar(out, "out-file", "", "write to this file instead of standard output")
}

// writeTo runs f on standard output, or on a file (see files.Write).
func writeTo(s *Streams, path string, f func(io.Writer) error) error {
	if path == "" || path == "-" {
		return f(s.Out)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return usagef("--out-file %s is a directory", path)
	}
	return files.Write(path, f)
}
