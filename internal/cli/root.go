package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/hub"
	"github.com/memplan/memplan/internal/nearest"
	"github.com/memplan/memplan/internal/report"
)

// newRoot builds the command tree.
func newRoot(s *Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "memplan",
		Short: "Plan the GPU memory of a training job before it is started",
		Long: `memplan predicts, from a YAML file, what PyTorch's CUDA allocator does during a
training job: the peak, the fragmentation, and whether the job runs out of memory.
It needs no GPU and no Python.

From a job that failed with "CUDA out of memory" to a check in CI:

  memplan explain train.log                      what the message says, and why
  memplan schema --desugar preset:gpt > my.yaml  a spec to start from; or write one,
                                                 or take a config.json of Hugging Face
  memplan explain train.log --spec my.yaml       is it the failure that is predicted?
  memplan estimate my.yaml                       the verdict, and changes that make it fit
  memplan check my.yaml                          exits with 1 if it does not fit`,
		Example: `  memplan estimate
  memplan estimate preset:resnet --batch-size 256 --gpu rtx-3090`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q%s (see memplan --help)", args[0], didYouMean(args[0], commandNames))
			}
			return nil
		},
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
		Version: versionText(),
	}
	root.SetVersionTemplate("memplan {{.Version}}\n")
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%s (see %s --help)", flagError(c, err.Error()), c.CommandPath())
	})
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(newHelp())
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", s.width())))
	root.PersistentFlags().String("color", colors[0], "colours: auto, always or never")
	root.PersistentFlags().StringVar(&s.root, "root", "", "folder that must contain all files that specs and configurations name (default: the repository, or this folder)")
	s.hub = new(hub.Hub)
	root.PersistentFlags().StringVar(&s.hub.Given, "model-config", "", "config.json of the model that the spec or the command line names")
	download := root.PersistentFlags().Bool("download", false, "download the config.json of models that are named, if it is neither cached nor known (HF_ENDPOINT, HF_TOKEN)")
	var bounds bounding
	bounds.flags(root)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if s.root != "" {
			if _, err := files.NewRoot(s.root); err != nil {
				return usagef("--root: %w", err)
			}
		}
		s.hub.Cache = hub.CacheFolder(s.Env)
		if *download {
			var err error
			if s.hub.Download, err = hub.NewClient(c.Context(), s.Env); err != nil {
				return usagef("--download: %w", err)
			}
		}
		return bounds.begin(c, s)
	}
	root.AddCommand(newEstimate(s), newCheck(s), newDiff(s), newRun(s), newRecord(s), newCalibrate(s), newExplain(s), newSimulate(s), newExport(s), newImport(s), newList(s), newSchema(s), newCompletion(s), newVersion(s))
	completeFlags(root)
	commandNames = nil
	for _, c := range root.Commands() {
		commandNames = append(commandNames, c.Name())
	}
	return root
}

// flagError words pflag's messages for users: no names of Go functions, and for an
// unknown flag the nearest one, or those that begin so.
func flagError(c *cobra.Command, msg string) string {
	if before, _, ok := strings.Cut(msg, ": strconv."); ok {
		return before + ": must be a whole number"
	}
	if name, ok := strings.CutPrefix(msg, "unknown flag: --"); ok {
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		meant := slices.DeleteFunc(slices.Clone(known), func(f string) bool { return !strings.HasPrefix(f, name) })
		if n := nearest.To(name, known); n != "" {
			meant = []string{n}
		}
		if len(meant) > 0 {
			return fmt.Sprintf("%s; did you mean --%s?", msg, strings.Join(meant, " or --"))
		}
	}
	return msg
}

// colors are the values of --color.
var colors = []string{"auto", "always", "never"}

// commandNames are what an unknown command is compared with.
var commandNames []string

// colored reports whether to print colours: never with NO_COLOR or on a dumb
// terminal, unless they are asked for.
func colored(c *cobra.Command, s *Streams) (report.Ink, error) {
	v, err := c.Flags().GetString("color")
	if err != nil {
		return false, err
	}
	switch v {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
	default:
		return false, usagef("--color %s: allowed are auto, always and never", v)
	}
	if _, no := s.Env("NO_COLOR"); no {
		return false, nil
	}
	term, _ := s.Env("TERM")
	return report.Ink(s.OutTTY && term != "dumb"), nil
}

// didYouMean suggests one of the allowed names, if one is near.
func didYouMean(name string, allowed []string) string {
	if n := nearest.To(name, allowed); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	return ""
}

// oneOf checks the value of an enumerated flag.
func oneOf(flag, value string, allowed []string) error {
	for _, a := range allowed {
		if a == value {
			return nil
		}
	}
	return usagef("--%s %s: allowed are %s%s", flag, value, strings.Join(allowed, ", "), didYouMean(value, allowed))
}

// atMost refuses more than n arguments.
func atMost(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef("unexpected argument %q; %s", args[n], what)
		}
		return nil
	}
}
