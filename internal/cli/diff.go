package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/webpage"
	"github.com/memplan/memplan/plan"
)

// comparison is what the command line asks of a diff.
type comparison struct {
	estimation
	all, exitCode bool
}

func newDiff(s *Streams) *cobra.Command {
	var d comparison
	names := report.DiffFormats.Names()
	c := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare the memory of two jobs",
		Long: `Diff compares two jobs: the peak and its parts, the layers, the verdict and the
largest batch. A and B are each a spec, preset:NAME, a report (the JSON of memplan
estimate), REF:PATH for a file as of a git commit, or - for standard input. Flags
apply to both specs; reports are compared as they are.

Only differences are printed; different names of layers or files are not counted.
The exit code is 0 whatever the outcome, unless --exit-code is given.`,
		Example: `  memplan diff preset:gpt preset:gpt2 --quick
  memplan estimate preset:lenet --batch-size 8 --format json | memplan diff preset:lenet -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("diff needs two jobs, A and B, not %d", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return d.run(c, s, args, names) },
	}
	d.flags(c)
	f := c.Flags()
	f.StringVar(&d.format, "format", names[0], strings.Join(names, ", "))
	completeFlag(c, "format", func() []string { return names })
	f.IntVar(&d.top, "top", 20, "layers to show")
	f.BoolVar(&d.all, "all", false, "also print figures that are equal")
	f.BoolVar(&d.quick, "quick", false, "do not search for the largest batch")
	d.pictures.flags(c)
	f.BoolVar(&d.exitCode, "exit-code", false, "exit with 1 if the jobs differ")
	d.share = defaultShare
	return c
}

func (d *comparison) run(c *cobra.Command, s *Streams, args, formats []string) error {
	if err := oneOf("format", d.format, formats); err != nil {
		return err
	}
	if d.top < 0 {
		return usagef("--top %d: must not be negative", d.top)
	}
	if strings.Contains(d.gpu, ",") {
		return usagef("--gpu %s: diff compares on one GPU", d.gpu)
	}
	color, err := colored(c, s)
	if err != nil {
		return err
	}
	var sides [2]*report.Report
	var memory []webpage.Memory
	reports := 0
	for i, name := range args {
		text, err := readSource(s, name)
		if err != nil {
			return err
		}
		if isReport(text) {
			reports++
			sides[i], err = readReport(name, text)
		} else {
			var o *plan.Estimate
			if o, err = d.side(c, s, name, text); err == nil {
				sides[i] = o.Report
			}
			if err == nil && d.pictures.asked() != "" {
				var m []webpage.Memory
				m, err = memoryOf(o.TraceToPeak(), o.Report)
				for k := range m {
					m[k].Name = string(rune('A'+i)) + ", " + m[k].Name
				}
				memory = append(memory, m...)
			}
		}
		if err != nil {
			return err
		}
	}
	if reports == len(sides) {
		if given := d.given(c); given != "" {
			return usagef("--%s changes a spec, and both A and B are reports", given)
		}
	}
	diff := report.Compare(sides[0], sides[1])
	if err := d.pictures.write(s, func() (*webpage.Page, error) { return webpage.OfDiff(diff, memory), nil }); err != nil {
		return err
	}
	if !d.pictures.alone() {
		format, options := report.DiffFormats.Lookup(d.format), report.DiffOptions{All: d.all, Top: d.top, Color: color}
		write := func(w io.Writer) error { return format.Write(w, diff, options) }
		if d.format == formats[0] {
			options.Width = s.terminal()
			err = s.people(write)
		} else {
			err = write(s.Out)
		}
		if err != nil {
			return err
		}
	}
	if d.exitCode && !diff.Equal {
		return answerNo{}
	}
	return nil
}

// side estimates a spec.
func (d *comparison) side(c *cobra.Command, s *Streams, name string, text []byte) (*plan.Estimate, error) {
	e := d.estimation // each side has files of its own
	r, err := e.recipeOf(c, s, name, text)
	if err != nil {
		return nil, err
	}
	return e.outcome(within(c, r), plan.FromRecipe(r))
}

// given names a flag of a spec that was given, "" if none was.
func (d *comparison) given(c *cobra.Command) string {
	var source source
	flags := &cobra.Command{}
	source.flags(flags)
	name := ""
	flags.Flags().VisitAll(func(f *pflag.Flag) {
		if c.Flags().Changed(f.Name) {
			name = f.Name
		}
	})
	return name
}

// isReport tells the JSON of an estimate from a spec.
func isReport(text []byte) bool {
	var v struct {
		Version *json.RawMessage `json:"memplan_report"`
	}
	return json.Unmarshal(text, &v) == nil && v.Version != nil
}

// readReport reads the JSON of an estimate. Members that it does not know are
// of a later memplan, and left out.
func readReport(name string, text []byte) (*report.Report, error) {
	r := &report.Report{}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(r); err != nil {
		return nil, usagef("%s: a report with mistakes: %w", name, err)
	}
	if r.Version != report.Version {
		return nil, usagef("%s: a report of version %d; this memplan reads version %d", name, r.Version, report.Version)
	}
	r.Spec = name + " (a report of " + r.Spec + ")"
	return r, nil
}
