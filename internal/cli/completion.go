package cli

import (
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/hub"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
)

// shells is the table behind memplan completion.
var shells = []struct {
	name, load string
	write      func(root *cobra.Command, s *Streams) error
}{
	{"bash", "source <(memplan completion bash)", func(root *cobra.Command, s *Streams) error { return root.GenBashCompletionV2(s.Out, true) }},
	{"zsh", "source <(memplan completion zsh)", func(root *cobra.Command, s *Streams) error { return root.GenZshCompletion(s.Out) }},
	{"fish", "memplan completion fish | source", func(root *cobra.Command, s *Streams) error { return root.GenFishCompletion(s.Out, true) }},
	{"powershell", "memplan completion powershell | Out-String | Invoke-Expression", func(root *cobra.Command, s *Streams) error {
		return root.GenPowerShellCompletionWithDesc(s.Out)
	}},
}

func newCompletion(s *Streams) *cobra.Command {
	var names []string
	long := "Print a script that makes a shell complete memplan's commands, flags, and names of\nGPUs, presets, optimizers and operators. To load it:\n"
	for _, sh := range shells {
		names = append(names, sh.name)
		long += "\n  " + sh.name + strings.Repeat(" ", 12-len(sh.name)) + sh.load
	}
	return &cobra.Command{
		Use:     "completion {" + strings.Join(names, " | ") + "}",
		Short:   "Print the completion script of a shell",
		Long:    long,
		Example: "  memplan completion bash\n  memplan completion fish",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("completion needs one of %s", strings.Join(names, ", "))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			for _, sh := range shells {
				if sh.name == args[0] {
					return sh.write(c.Root(), s)
				}
			}
			return usagef("unknown shell %q%s; allowed are %s", args[0], didYouMean(args[0], names), strings.Join(names, ", "))
		},
	}
}

// flagValues says what flags take, whichever command has them. Text behind a
// tab is shown beside a value.
var flagValues = map[string]func() []string{
	"gpu":             gpuNames,
	"precision":       func() []string { return enumOf(spec.Train{}, "Precision") },
	"optimizer":       optim.Names,
	"cudnn-workspace": func() []string { return []string{"apart", "model", "none"} },
	"torch":           func() []string { return append([]string{torchver.Auto}, torchver.Names()...) },
	"color":           func() []string { return colors },
}

func gpuNames() []string {
	var out []string
	for _, g := range device.All() {
		out = append(out, g.Name+"\t"+g.Display)
	}
	return out
}

// enumOf reads what a key of the spec may say.
func enumOf(section any, field string) []string {
	f, _ := reflect.TypeOf(section).FieldByName(field)
	return strings.Split(f.Tag.Get("enum"), "|")
}

// completeFlags makes the flags of a command and those below it complete.
func completeFlags(c *cobra.Command) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if values := flagValues[f.Name]; values != nil {
			completeFlag(c, f.Name, values)
		}
	})
	for _, sub := range c.Commands() {
		completeFlags(sub)
	}
}

// completeFlag offers the values of one flag; of a list, those that are not in
// it yet.
func completeFlag(c *cobra.Command, flag string, values func() []string) {
	err := c.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		list := ""
		if i := strings.LastIndexByte(typed, ','); i >= 0 {
			list = typed[:i+1]
		}
		given := strings.Split(list, ",")
		var out []string
		for _, v := range values() {
			if name, _, _ := strings.Cut(v, "\t"); !slices.Contains(given, name) {
				out = append(out, list+v)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag is not there, or has a function already
	}
}

// presetArgs are the presets as arguments name them, and the models of Hugging Face.
func presetArgs() []string {
	out := slices.Clone(hub.Names())
	for _, n := range presetNames() {
		out = append(out, presetPrefix+n)
	}
	return out
}
