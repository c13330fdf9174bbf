package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/importer"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/spec"
)

// launching is what the command that launches a job says beside its file.
type launching struct {
	accelerate string
	processes  int64
}

// flags adds the flags of a launch.
func (l *launching) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&l.accelerate, "accelerate-config", "", "configuration of accelerate for a file of Axolotl, LLaMA-Factory, TRL or transformers")
	f.Int64Var(&l.processes, "num-processes", 0, "processes that the launch command of such a file starts, each on a GPU")
}

func newImport(s *Streams) *cobra.Command {
	var o source
	c := &cobra.Command{
		Use:   "import FILE...",
		Short: "Print the spec that files of Axolotl, LLaMA-Factory, TRL or transformers mean",
		Long: `Import reads the file of a training job as its program does, and prints the spec
that it means: an Axolotl YAML, a LLaMA-Factory YAML, TRL's --config YAML, or a JSON
of TrainingArguments or SFTConfig. A configuration of accelerate and a DeepSpeed JSON
may come with it. Comments say what is assumed, what is not modelled, and which keys
are left out, and why.

Every command that takes a spec takes such a file, too.`,
		Example: `  memplan import qlora.yml
  memplan import qlora.yml accelerate.yaml --set micro_batch_size=1`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("import needs a FILE, such as an Axolotl YAML")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			var list []importer.File
			for _, name := range args {
				text, err := readSource(s, name)
				if err != nil {
					return err
				}
				list = append(list, importer.File{Name: shownName(name), Text: text})
			}
			made, err := o.imported(s, args[0], list, true)
			if err != nil {
				return err
			}
			if len(made.Set) > 0 {
				return usagef("--set %s: %s has no such key", made.Set[0], args[0])
			}
			_, err = s.Out.Write(append(bytes.TrimRight(made.Text, "\n"), '\n'))
			return err
		},
	}
	o.launching.flags(c)
	c.Flags().StringArrayVar(&o.set, "set", nil, "override a key of the file: --set micro_batch_size=1 (may be repeated)")
	return c
}

// shownName is the name of a file in messages.
func shownName(name string) string {
	if name == "-" {
		return "<stdin>"
	}
	return name
}

// imported reads the files of a job, and the configuration of accelerate that the
// command line names; prints says that the spec is printed.
func (o *source) imported(s *Streams, name string, list []importer.File, prints bool) (*importer.Job, error) {
	if o.accelerate != "" {
		text, err := s.read(o.accelerate, files.MaxText)
		if err != nil {
			return nil, err
		}
		list = append(list, importer.File{Name: o.accelerate, Text: text})
	}
	if o.processes < 0 {
		return nil, usagef("--num-processes %d: must be 1 or more", o.processes)
	}
	made, err := importer.Read(list, importer.Options{
		Set: o.set, Print: prints, Processes: o.processes, Lengths: o.lengths != "", Precision: o.precision, ReadFile: upward(o.files(s, name)),
		Config: func(model string) []byte {
			if !s.hub.Has(model) {
				return nil
			}
			c, err := s.hub.Find(model)
			if err != nil { // which the spec reports
				return nil
			}
			return c.Text
		},
	})
	if misuse := (*importer.MisuseError)(nil); errors.As(err, &misuse) {
		return nil, usagef("%s", printable.Text(misuse.Text))
	}
	return made, err
}

// upward reads a file whose path starts at a folder, or at one around it: programs are
// started there.
func upward(read func(name string) ([]byte, error)) func(name string) ([]byte, error) {
	const most = 8
	return func(name string) (text []byte, err error) {
		for up, i := name, 0; i < most; up, i = filepath.Join("..", up), i+1 {
			again, e := read(up)
			if e == nil {
				return again, nil
			}
			if err == nil {
				err = e
			}
			if filepath.IsAbs(name) || !errors.Is(e, fs.ErrNotExist) {
				break
			}
		}
		return nil, err
	}
}

// jobFile makes the spec of a file of another program. Messages and the spec show its
// text, so that it may be no link: whoever made one did not call memplan.
func (o *source) jobFile(s *Streams, name string, text []byte) (made *importer.Job, err error) {
	if isLink(name) {
		return nil, usagef("%s is a link; name the file itself", name)
	}
	return o.imported(s, name, []importer.File{{Name: shownName(name), Text: text}}, false)
}

// asJob are the options by which a spec is read that was made of a file.
func asJob(options *spec.Options, name string, made *importer.Job) {
	options.Set, options.Said, options.Made = made.Set, made.Said, true
	options.Origins, options.Notes, options.Keys = made.Origins, made.Notes, made.Keys
	options.Label = name + " (as a spec)"
}
