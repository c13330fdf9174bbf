package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/report"
)

// explainer answers for one kind of thing.
type explainer struct {
	kind  string
	names func() []string
	// about says what is to be said of a name: lines for people and data for
	// programs.
	about func(name string, width int) (text string, data any)
}

func newExplain(s *Streams) *cobra.Command {
	var format string
	var shown pictures
	var src source
	var specPath string
	c := &cobra.Command{
		Use:   "explain [LOG | SNAPSHOT | NAME]",
		Short: "Explain an out-of-memory error or a snapshot of memory, or what a name means to memplan",
		Long: `Explain reads the log of a job that ran out of memory, from a file or from standard
input. For each out-of-memory message it prints the size of the request, what was
free, the cause (too much memory in tensors, fragmentation, another process, a
memory limit, a leak, or host memory) and what to do.

With --spec it compares the message and the traceback above it with the prediction
for that spec: the size, the phase, the module and the operator of the request, and
the step. "As planned" means that none of these differs. Explain also names those
that the log does not contain.

SNAPSHOT is a file that torch.cuda.memory._dump_snapshot wrote. For each device memplan
prints the request that failed, which lines of the program hold the memory, and where
it grows. It replays the recorded events with other settings of the allocator, and with
those of --alloc-conf, --gpu and --memory (docs/snapshots.md). --html FILE writes a page
that shows the recorded events, --svg FILE a picture. A snapshot is a pickle, of which memplan reads plain data
alone: nothing in it runs.

NAME is a key, a statement or another topic of the spec language (memplan list
topics), an operator, a layer, an optimizer, a GPU, a preset, a rule of memplan
check, or a change that memplan tries if a job does not fit. If a name means several
things, all are explained. For one of them, write language:NAME, op:NAME,
layer:NAME, optimizer:NAME, device:NAME, preset:NAME, rule:NAME or change:NAME.`,
		Example: `  memplan explain gelu
  memplan explain inputs
  memplan explain --format json device:a100-40gb`,
		Args: atMost(1, "explain takes one LOG, SNAPSHOT or NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("format", format, textJSON); err != nil {
				return err
			}
			name := "-"
			if len(args) > 0 {
				name = args[0]
			}
			if found := explainNames(name); len(found) > 0 {
				if flag := shown.asked(); flag != "" {
					return usagef("--%s shows a snapshot of PyTorch's memory; %q is a name", flag, name)
				}
				if format == "json" {
					data := map[string]any{}
					for _, f := range found {
						_, data[f.kind] = f.about(f.name, s.width())
					}
					return report.JSON(s.Out, data)
				}
				for i, f := range found {
					if i > 0 {
						fmt.Fprintln(s.Out)
					}
					text, _ := f.about(f.name, s.width())
					fmt.Fprint(s.Out, text)
				}
				return nil
			}
			log, err := s.read(name, maxLog)
			if errors.Is(err, fs.ErrNotExist) {
				near := didYouMean(name, allNames())
				if near == "" {
					near = "; memplan list topics shows what there is of the language, memplan list the rest"
				}
				return usagef("%q is neither a file nor the name of something that memplan knows%s", name, near)
			}
			if err != nil {
				return err
			}
			if isPickle(log) {
				return explainSnapshot(c, s, name, log, &src, format, &shown)
			}
			if flag := shown.asked(); flag != "" {
				return usagef("--%s shows a snapshot of PyTorch's memory; %s is none", flag, name)
			}
			var plan *source
			if c.Flags().Changed("spec") {
				plan = &src
			}
			return explainLog(c, s, name, string(log), plan, specPath, format)
		},
	}
	f := c.Flags()
	f.StringVar(&format, "format", "text", "text or json")
	completeFlag(c, "format", func() []string { return textJSON })
	shown.flags(c)
	f.StringVar(&specPath, "spec", "", "spec of the job that failed; its prediction is compared with the message")
	src.flags(c)
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		words := slices.DeleteFunc(allNames(), func(n string) bool { return strings.Contains(n, " ") })
		return words, cobra.ShellCompDirectiveDefault
	}
	return c
}

// named is one thing that a name means.
type named struct {
	explainer
	name string
}

// explainNames finds what a name means; a file of that name comes before.
func explainNames(name string) []named {
	if name == "-" {
		return nil
	}
	var out []named
	for _, e := range explainers {
		if n, ok := cutKind(name, e.kind); ok && slices.Contains(e.names(), n) {
			return []named{{e, n}}
		}
		if slices.Contains(e.names(), name) {
			out = append(out, named{e, name})
		}
	}
	if st, err := os.Stat(name); err == nil && !st.IsDir() {
		return nil
	}
	return out
}

func cutKind(name, kind string) (string, bool) {
	if len(name) > len(kind) && name[:len(kind)] == kind && name[len(kind)] == ':' {
		return name[len(kind)+1:], true
	}
	return "", false
}

// allNames lists the names of all kinds.
func allNames() []string {
	var out []string
	for _, e := range explainers {
		out = append(out, e.names()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
