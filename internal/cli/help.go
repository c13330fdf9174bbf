package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// newHelp takes the place of cobra's own, which answers to an unknown topic
// with exit code 0.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command",
		Long:  "Print what a command does and which flags it takes, as COMMAND --help does.",
		RunE: func(c *cobra.Command, args []string) error {
			found, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("unknown command %q%s (see memplan --help)", strings.Join(args, " "), didYouMean(args[len(args)-1], commandNames))
			}
			found.InitDefaultHelpFlag() // so that it is listed
			return found.Help()
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var out []string
			if found, rest, err := c.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range found.Commands() {
					if sub.IsAvailableCommand() {
						out = append(out, sub.Name()+"\t"+sub.Short)
					}
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
