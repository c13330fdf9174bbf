package cli

import (
	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
)

func newSchema(s *Streams) *cobra.Command {
	var (
		src     source
		desugar bool
	)
	c := &cobra.Command{
		Use:   "schema [--desugar SPEC | preset:NAME]",
		Short: "Print the JSON Schema of the spec language, or a spec written out",
		Long: `Print the JSON Schema of the spec language, for editors that complete and check
YAML. With --desugar, print a spec with everything that it implies written out: the
step as a list of statements, the preset's model in place of its name.`,
		Example: `  memplan schema
  memplan schema --desugar preset:lenet`,
		Args: atMost(1, "schema takes one SPEC, with --desugar"),
		RunE: func(c *cobra.Command, args []string) error {
			if !desugar {
				if len(args) > 0 {
					return usagef("unexpected argument %q; a SPEC goes with --desugar", args[0])
				}
				return report.JSON(s.Out, spec.Schema(graph.Vocabulary()))
			}
			j, err := src.job(c, s, args)
			if err == nil {
				err = ofSpec(j)
			}
			if err != nil {
				return err
			}
			text, err := j.Spec.Explicit(j.Definer, j.Loop)
			if err != nil {
				return err
			}
			_, err = s.Out.Write(text)
			return err
		},
	}
	src.flags(c)
	c.Flags().BoolVar(&desugar, "desugar", false, "print SPEC with everything that it implies written out")
	return c
}
