package cli

import (
	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/report"
)

func newEstimate(s *Streams) *cobra.Command {
	var (
		src    source
		format string
		top    int
	)
	c := &cobra.Command{
		Use:   "estimate [SPEC | preset:NAME]",
		Short: "Tell whether a job fits on a GPU, and what its memory goes to",
		Long: `Estimate plays the training steps of a spec, replays every allocation in a model
of PyTorch's caching allocator, and prints the verdict: FITS, TIGHT (only after
cached memory is given back) or OOM. SPEC is a path, or - for standard input.
Without one it estimates GPT-2 124M. The exit code is 0 whatever the verdict.`,
		Example: `  memplan estimate
  memplan estimate preset:resnet --batch-size 512 --gpu rtx-3060 --format json`,
		Args: atMost(1, "estimate takes one SPEC"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("format", format, report.FormatNames()); err != nil {
				return err
			}
			if top < 0 {
				return usagef("--top %d: must not be negative", top)
			}
			color, err := colored(c, s)
			if err != nil {
				return err
			}
			j, err := src.job(c, s, args)
			if err != nil {
				return err
			}
			o, err := estimate.Run(j)
			if err != nil {
				return err
			}
			return report.Lookup(format).Write(s.Out, o.Report(), report.Options{Top: top, Color: color})
		},
	}
	src.flags(c)
	c.Flags().StringVar(&format, "format", report.Formats[0].Name, "text or json")
	c.Flags().IntVar(&top, "top", 8, "layers to show")
	return c
}
