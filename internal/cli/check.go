package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/gate"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/report"
)

// checking is what the command line asks of a check.
type checking struct {
	gate.Flags
	config, against, commit, write string
	format                         string
	reports                        []string
	onlySpecs                      bool
	torch                          string
}

func newCheck(s *Streams) *cobra.Command {
	var k checking
	c := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "Check specs in continuous integration: fail if one no longer fits",
		Long: `Check estimates specs and applies rules to them: a job must not run out of memory,
leave too little headroom, or need more memory than before. PATH is a spec, a file of
Axolotl, LLaMA-Factory or TRL, a recording of memplan record, a folder, a config.json of
Hugging Face, or preset:NAME; by default, the current folder. In a folder, all *.yaml
and *.yml files with the key memplan are specs. memplan list rules lists the rules,
memplan explain MP001 explains one.

Settings come from ` + gate.ConfigName + ` in the current folder or the nearest folder above
it: devices, headroom, max_growth, rules, and overrides for some specs. With
--against-git they come from that file as of the commit, so that a change cannot
relax the check that it has to pass.

--against FILE compares with the figures that --write-baseline FILE wrote;
--against-git REF compares with the specs as of a commit. --report FORMAT=FILE also
writes a report to a file.

The exit code is 0 if the check passes, 1 if it fails, 2 if flags, the
configuration or a spec are wrong (all other specs are checked), and 3 if the check
could not finish, for example because a spec reached a limit of memory or time.`,
		Example: `  memplan check preset:lenet --gpu t4,rtx-4090
  memplan check preset:resnet --headroom 10% --format markdown`,
		RunE: func(c *cobra.Command, args []string) error { return k.run(c, s, args) },
	}
	f := c.Flags()
	f.StringVar(&k.config, "config", "", "configuration file (default: "+gate.ConfigName+" of this folder or one above; with --against-git, as of the commit)")
	f.StringSliceVar(&k.Devices, "gpu", nil, "check every spec on these GPUs instead of its own: a100-40gb,t4")
	torchFlag(c, &k.torch)
	f.StringVar(&k.Headroom, "headroom", "", "memory that must stay free: 5% of the usable memory, or 2GiB")
	f.StringVar(&k.MaxGrowth, "max-growth", "", "how much a peak may grow, such as 1% or 256MiB (default "+gate.DefaultGrowth+")")
	f.StringArrayVar(&k.Rules, "rule", nil, "severity of a rule: MP005=off, MP006=error (may be repeated)")
	f.StringVar(&k.FailOn, "fail-on", "", "lowest severity that makes the check fail: error, warning, note or never (default error)")
	f.StringVar(&k.against, "against", "", "compare with the figures in this file")
	f.StringVar(&k.commit, "against-git", "", "compare with the specs as of this commit, such as origin/main")
	f.StringVar(&k.write, "write-baseline", "", "write the figures to this file, for --against")
	f.StringVar(&k.format, "format", gate.Formats.Default(), strings.Join(gate.Formats.Names(), ", "))
	f.StringArrayVar(&k.reports, "report", nil, "also write a report to a file: junit=out.xml (may be repeated)")
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return presetArgs(), cobra.ShellCompDirectiveDefault
	}
	completeFlag(c, "format", gate.Formats.Names)
	completeFlag(c, "fail-on", func() []string { return gate.FailOnNames })
	f.BoolVar(&k.onlySpecs, "only-specs", false, "ignore named files that are not specs, for tools that name all changed files")
	return c
}

func (k *checking) run(c *cobra.Command, s *Streams, args []string) error {
	format, err := gate.LookupFormat(k.format)
	if err != nil {
		return usagef("--format: %w", err)
	}
	outs, err := k.outputs()
	if err != nil {
		return err
	}
	if err := k.writable(s, outs); err != nil {
		return err
	}
	color, err := colored(c, s)
	if err != nil {
		return err
	}
	var at *commit
	if k.commit != "" || c.Flags().Changed("against-git") {
		if at, err = s.openCommit(k.commit); err != nil {
			return err
		}
		at.torch = k.torch
	}
	conf, file, err := k.configuration(s, at)
	if err != nil {
		return err
	}
	o := &gate.Options{Config: conf, Version: versionText(), Recipe: recipes(c.Context(), s, k.torch), Budget: s.guard.Budget, Time: checkTime * s.guard.Limits().Time}
	if o.ConfigChange, err = k.configChange(s, at, file); err != nil {
		return err
	}
	if len(args) == 0 && !k.onlySpecs {
		args = []string{"."}
	}
	present := args
	if at != nil {
		present = at.there(args)
	}
	o.Specs, err = conf.Find(present, k.onlySpecs, s.notInFolders)
	if none := (*gate.NoSpecs)(nil); errors.As(err, &none) {
		return usagef("%w", err)
	} else if err != nil {
		return err
	}
	if err := k.compare(c, s, o, at, file, args); err != nil {
		return err
	}
	progress := newProgress(s)
	o.Progress = progress.show
	r, err := gate.Check(c.Context(), o)
	progress.clear()
	if err != nil {
		return err
	}
	style := gate.Style{Version: versionText(), Root: sourceRoot(s), Color: bool(color)}
	write := func(w io.Writer) error {
		text, err := format.Print(r, style)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	if format.Name == gate.Formats.Default() {
		style.Width = s.terminal()
		err = s.people(write)
	} else {
		err = write(s.Out)
	}
	if err != nil {
		return err
	}
	for _, out := range outs {
		text, err := out.format.Print(r, gate.Style{Version: versionText(), Root: sourceRoot(s)})
		if err != nil {
			return err
		}
		if err := files.WriteBytes(out.path, text); err != nil {
			return fmt.Errorf("--report: %w", err)
		}
	}
	if k.write != "" {
		if err := k.writeBaseline(r); err != nil {
			return err
		}
	}
	for i := range r.Specs {
		if c := &r.Specs[i]; c.Panic != nil {
			fmt.Fprintf(s.Err, "memplan: %s: internal error: %v\n", printable.Text(c.Spec), c.Panic)
		}
	}
	return verdict(r)
}

// verdict is the error of a result, by which the command exits.
func verdict(r *gate.Result) error {
	switch {
	case r.Unfinished > 0:
		return fmt.Errorf("%s could not be checked to the end", report.Plural(int64(r.Unfinished), "spec"))
	case r.Unread > 0:
		return usagef("%s cannot be read", report.Plural(int64(r.Unread), "spec"))
	case r.Failed:
		return answerNo{}
	}
	return nil
}

// checkTime is how much longer a check may take as a whole than one of its jobs.
const checkTime = 6

// output is a report that goes to a file.
type output struct {
	format *gate.Format
	path   string
}

// outputs reads --report.
func (k *checking) outputs() ([]output, error) {
	var out []output
	for _, r := range k.reports {
		name, path, ok := strings.Cut(r, "=")
		if !ok || path == "" {
			return nil, usagef("--report %s: must be FORMAT=FILE, such as junit=report.xml", r)
		}
		f, err := gate.LookupFormat(name)
		if err != nil {
			return nil, usagef("--report %s: %w", r, err)
		}
		if slices.ContainsFunc(out, func(o output) bool { return o.path == path }) {
			return nil, usagef("--report %s: two reports go to the same file", r)
		}
		out = append(out, output{f, path})
	}
	return out, nil
}

// writable refuses to write through links out of the project: whoever made one did
// not call memplan.
func (k *checking) writable(s *Streams, outs []output) error {
	for _, out := range append(outs, output{path: k.write}) {
		if out.path == "" {
			continue
		}
		for _, name := range []string{filepath.Dir(out.path), out.path} {
			if err := s.insideProject(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// sourceRoot is the folder of the project where a service of continuous
// integration runs memplan: paths of annotations start there.
func sourceRoot(s *Streams) string {
	for _, name := range []string{"GITHUB_WORKSPACE", "CI_PROJECT_DIR"} {
		if dir, _ := s.Env(name); filepath.IsAbs(dir) {
			return dir
		}
	}
	return ""
}

// compare says what the specs are compared with: the commit, if it is not nil, or
// a baseline.
func (k *checking) compare(c *cobra.Command, s *Streams, o *gate.Options, at *commit, file *configFile, args []string) error {
	path := k.against
	if path != "" && k.commit != "" {
		return usagef("--against and --against-git exclude each other")
	}
	if at != nil {
		o.Against = k.commit
		o.Before = func(path string, now []byte) (*estimate.Recipe, error) { return at.recipe(c.Context(), s, path, now) }
		var err error
		o.Gone, err = at.moved(o.Config, args, o.Specs)
		return err
	}
	read := func() ([]byte, error) { return s.read(path, files.MaxText) }
	if b := &o.Config.Baseline; path == "" && b.Set {
		path = file.Named(b.V)
		read = func() (text []byte, err error) {
			if text, err = file.Read(b.V); err != nil {
				err = fmt.Errorf("baseline: %w", err)
			}
			return text, err
		}
	}
	if path == "" {
		if k.MaxGrowth != "" && k.write == "" {
			return usagef("--max-growth has nothing to compare with; give --against or --against-git")
		}
		return nil
	}
	text, err := read()
	if errors.Is(err, os.ErrNotExist) {
		if k.against == "" && k.write != "" { // to be written now
			return nil
		}
		return fmt.Errorf("%w (--write-baseline writes it)", err)
	}
	if err != nil {
		return err
	}
	o.Against = path
	if o.Baseline, err = gate.ReadBaseline(path, text); err != nil {
		return usagef("%w", err)
	}
	if k.against == "" {
		o.Baseline.From(filepath.Join(file.dir, filepath.Dir(o.Config.Baseline.V)))
	}
	return nil
}

func (k *checking) writeBaseline(r *gate.Result) error {
	b, err := r.Baseline(k.write, versionText())
	if err != nil {
		return err
	}
	text, err := b.Text()
	if err != nil {
		return err
	}
	if err := files.WriteBytes(k.write, text); err != nil {
		return fmt.Errorf("--write-baseline: %w", err)
	}
	return nil
}

// notInFolders reports arguments that name specs which are no files.
func (s *Streams) notInFolders(name string) bool {
	return name == "-" || strings.HasPrefix(name, presetPrefix) || s.namesModel(name)
}

// recipes reads specs as the other commands do, with none of their flags but --torch.
func recipes(ctx context.Context, s *Streams, torch string) func(path string) (*estimate.Recipe, error) {
	return func(path string) (*estimate.Recipe, error) {
		text, err := readSource(s, path)
		if err != nil {
			return nil, err
		}
		return plainRecipe(ctx, s, torch, path, text)
	}
}

// plainRecipe is the recipe of a spec in which no flag changes anything, but --torch if it is
// given.
func plainRecipe(ctx context.Context, s *Streams, torch, path string, text []byte) (*estimate.Recipe, error) {
	bare, o := &cobra.Command{}, new(source)
	bare.SetContext(ctx)
	torchFlag(bare, &o.torch)
	if torch != "" {
		if err := bare.Flags().Set("torch", torch); err != nil {
			return nil, err
		}
	}
	return o.recipeOf(bare, s, path, text)
}
