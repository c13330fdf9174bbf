package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/graph/hf"
	"github.com/memplan/memplan/internal/importer"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/record"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/specs"
)

// presetPrefix marks the name of a preset where a path is expected.
const presetPrefix = "preset:"

// source is where a spec comes from and what the command line changes in it.
type source struct {
	gpu, precision, optimizer, allocConf string
	cudnnWorkspace, torch                string
	memory, arch, devices                string
	sms                                  int64
	batch                                int64
	steps                                int64
	set                                  []string
	lengths                              string

	launching

	config     []byte // a config.json in place of the spec
	configPath string // "" of a model's name
}

// flags adds the flags of a source to a command.
func (o *source) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.gpu, "gpu", "", "GPU, such as a100-80gb; see memplan list devices")
	f.StringVar(&o.memory, "memory", "", "total memory of the GPU, such as 24GiB, instead of the table's")
	f.StringVar(&o.arch, "arch", "", "architecture of the GPU, such as sm_80; with --memory and --sms, --gpu is not needed")
	f.Int64Var(&o.sms, "sms", 0, "streaming multiprocessors of the GPU")
	f.StringVar(&o.devices, "devices", "", "file with more GPUs for --gpu: a YAML list of name, memory, arch, sms, context")
	f.Int64Var(&o.batch, "batch-size", 0, "number of samples in a batch")
	f.StringVar(&o.precision, "precision", "", "fp32, bf16, fp16, amp-bf16 or amp-fp16")
	f.StringVar(&o.optimizer, "optimizer", "", `optimizer, such as AdamW or "{SGD: {momentum: 0.9}}"`)
	torchFlag(c, &o.torch)
	f.StringVar(&o.allocConf, "alloc-conf", "", "value of PYTORCH_CUDA_ALLOC_CONF")
	f.StringVar(&o.cudnnWorkspace, "cudnn-workspace", "", "cuDNN's workspaces of convolutions: apart (not in the peak), model (in the peak), none, or a size (default apart)")
	f.Int64Var(&o.steps, "steps", 0, "number of steps to simulate (default: until memory repeats)")
	f.StringVar(&o.lengths, "lengths", "", "file with the lengths of the samples, one a line or as a histogram; the param seq takes them")
	f.StringArrayVar(&o.set, "set", nil, "override a key of the spec: --set train.loop=flat (may be repeated)")
	o.launching.flags(c)
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return presetArgs(), cobra.ShellCompDirectiveDefault
	}
}

// torchFlag adds the flag of the release of PyTorch.
func torchFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "torch", "", "release of PyTorch, such as 2.9; auto: that of the project's lock file or requirements")
}

// releaseOf reads --torch where there is no spec that it is a key of.
func releaseOf(torch string) (torchver.Version, error) {
	if torch == "" {
		return torchver.Default, nil
	}
	v, err := torchver.Parse(torch)
	if err != nil {
		return v, usagef("--torch: %w", err)
	}
	return v, nil
}

// overrides turns the flags that were given into keys of the spec.
func (o *source) overrides(c *cobra.Command) []spec.Flag {
	var out []spec.Flag
	for _, f := range []struct {
		flag, path, value string
		text              bool
	}{
		{"gpu", "device.gpu", o.gpu, true},
		{"memory", "device.memory", o.memory, true},
		{"arch", "device.arch", o.arch, true},
		{"sms", "device.sms", strconv.FormatInt(o.sms, 10), false},
		{"batch-size", "train.batch_size", strconv.FormatInt(o.batch, 10), false},
		{"precision", "train.precision", o.precision, true},
		{"optimizer", "train.optimizer", optimizerName(o.optimizer), false},
		{"torch", "torch", o.torch, true},
		{"alloc-conf", "device.alloc_conf", o.allocConf, true},
		{"cudnn-workspace", "device.cudnn_workspace", o.cudnnWorkspace, true},
		{"steps", "train.steps", strconv.FormatInt(o.steps, 10), false},
	} {
		if c.Flags().Changed(f.flag) {
			shown := fmt.Sprintf("--%s %s", f.flag, c.Flags().Lookup(f.flag).Value)
			out = append(out, spec.Flag{Flag: shown, Path: f.path, Value: f.value, Text: f.text})
		}
	}
	return out
}

// optimizerName lets the command line write an optimizer's name in any case.
func optimizerName(s string) string {
	for _, n := range optim.Names() {
		if strings.EqualFold(n, s) {
			return n
		}
	}
	return s
}

// recipe reads the spec that the arguments name: a path, "-" for standard
// input, preset:NAME, REF:PATH as of a commit, or, without an argument, the
// default preset.
func (o *source) recipe(c *cobra.Command, s *Streams, args []string) (*estimate.Recipe, error) {
	name := presetPrefix + specs.Default
	if len(args) > 0 {
		name = args[0]
	}
	text, err := readSource(s, name)
	if err != nil {
		return nil, err
	}
	r, err := o.recipeOf(c, s, name, text)
	if err == nil {
		r.Options.Calibrated, err = s.calibrated()
	}
	return r, err
}

// recipeOf makes the recipe of a spec that was read.
func (o *source) recipeOf(c *cobra.Command, s *Streams, name string, text []byte) (*estimate.Recipe, error) {
	var (
		said []string
		err  error
	)
	if name == "-" {
		name = "<stdin>"
	}
	if record.Is(text) {
		return o.recorded(c, s, name, text)
	}
	set := o.set
	if isHFConfig(text) {
		if name, text, set, err = o.named(s, name, text); err != nil {
			return nil, err
		}
		o.config, o.configPath = text, name
		switch {
		case s.isModel(name):
			o.configPath = ""
		case s.hub.Gives():
			return nil, usagef("--model-config is for a model that is named; %s is a configuration itself", name)
		}
		if text, said, err = wrapHF(name, text); err != nil {
			return nil, err
		}
	}
	options := spec.Options{Set: set, Lengths: o.lengths, Flags: o.overrides(c), Private: isLink(name), Said: said}
	options.Made = o.config != nil || strings.HasPrefix(name, presetPrefix)
	if o.config != nil {
		options.Label = name + " (as a spec)"
	}
	if importer.Is(name, text) {
		made, err := o.jobFile(s, name, text)
		if err != nil {
			return nil, err
		}
		text = made.Text
		options.Flags = slices.DeleteFunc(options.Flags, func(f spec.Flag) bool { return f.Path == "train.precision" }) // the file's keys say so
		asJob(&options, name, made)
	} else if o.accelerate != "" || o.processes != 0 {
		return nil, usagef("--accelerate-config and --num-processes are for files of Axolotl, LLaMA-Factory, TRL or transformers; in a spec, write parallel: {ddp: 8}")
	}
	if o.devices != "" {
		list, err := s.read(o.devices, files.MaxText)
		if err != nil {
			return nil, err
		}
		if options.GPUs, err = spec.ParseGPUs(o.devices, list); err != nil {
			return nil, err
		}
	}
	return &estimate.Recipe{Path: name, Text: text, Options: options, ReadFile: o.files(s, name), Hub: s.hub, Budget: s.bounded(c.Context())}, nil
}

// named is the configuration that --set model.hf=NAME puts in the place of one that is not part of
// a spec, and what else is set.
func (o *source) named(s *Streams, name string, text []byte) (string, []byte, []string, error) {
	var rest []string
	for _, set := range o.set {
		value, ok := strings.CutPrefix(set, "model.hf=")
		if !ok {
			rest = append(rest, set)
			continue
		}
		other, err := s.readConfig(value)
		if err != nil {
			return "", nil, nil, err
		}
		if !isHFConfig(other) {
			return "", nil, nil, usagef("--set %s: %s is not a config.json of Hugging Face", set, value)
		}
		name, text = value, other
	}
	return name, text, rest, nil
}

// isModel reports whether a name is that of a model, and there is no file of the name.
func (s *Streams) isModel(name string) bool {
	_, err := os.Lstat(name)
	return err != nil && s.hub.Has(name)
}

// namesModel reports whether an argument is the name of a model: gpt2 alone may also be meant for
// the preset.
func (s *Streams) namesModel(name string) bool { return s.isModel(name) && presetFor(name) == "" }

// readConfig reads the configuration that a name or a path means.
func (s *Streams) readConfig(name string) ([]byte, error) {
	if !s.isModel(name) {
		return readSource(s, name)
	}
	c, err := s.hub.Find(name)
	if err != nil {
		return nil, err
	}
	return c.Text, nil
}

func readSource(s *Streams, name string) ([]byte, error) {
	if t, ok := strings.CutPrefix(name, presetPrefix+hfPreset); ok { // the library's own defaults
		return hf.DefaultConfig(t), nil
	}
	if preset, ok := strings.CutPrefix(name, presetPrefix); ok {
		text, err := specs.Preset(preset)
		if err != nil {
			return nil, unknownPreset(preset)
		}
		return text, nil
	}
	if s.namesModel(name) {
		return s.readConfig(name)
	}
	if ref, path, ok := gitName(name); ok {
		text, err := readCommit(ref, path, files.MaxText)
		if err != nil {
			err = noSource(name, err)
		}
		return text, err
	}
	if err := s.insideProject(name); err != nil {
		return nil, err
	}
	limit := int64(files.MaxText)
	if isRecording(name) {
		limit = maxRecording
	}
	text, err := s.read(name, limit)
	if err != nil {
		return nil, noSource(name, err)
	}
	if record.Is(text) {
		return text, nil
	}
	return text, notSpec(name, text)
}

// read reads a file that the command line names, or standard input if its name
// is "-", without the mark of its encoding that editors on Windows put before a
// text. It may have at most limit bytes.
func (s *Streams) read(name string, limit int64) (text []byte, err error) {
	if name == "-" {
		if s.inRead {
			return nil, usagef("standard input can be read once; two files are named -")
		}
		s.inRead = true
		if s.InTTY {
			fmt.Fprintln(s.Err, "memplan: reading standard input; Ctrl-D ends it")
		}
		text, err = files.ReadStream(s.In, "<stdin>", limit)
	} else if st, statErr := os.Stat(name); statErr == nil && st.IsDir() {
		return nil, folderError(name)
	} else {
		text, err = files.ReadNamed(name, limit)
	}
	return bytes.TrimPrefix(text, []byte("\ufeff")), err
}

// rootOf is the folder that files which the file at path names must lie in:
// that of --root, or the project of the file. Project is false where there is
// none.
func (s *Streams) rootOf(path string) (root files.Root, project bool, err error) {
	dir := s.root
	if project = true; dir == "" {
		if s.notInFolders(path) {
			path = "."
		}
		if dir, project, err = files.ProjectRoot(path); err != nil {
			return root, false, err
		}
	}
	root, err = files.NewRoot(dir)
	return root, project, err
}

// insideProject refuses a file of a project that is a link out of it: whoever
// made the link, and not who called memplan, chose what is read.
func (s *Streams) insideProject(name string) error {
	if name == "-" {
		return nil
	}
	root, project, err := s.rootOf(name)
	if err != nil || !project {
		return nil // reading says what is wrong
	}
	_, err = root.Resolve(name)
	if outside := (*files.OutsideError)(nil); errors.As(err, &outside) && (outside.Link || outside.Git) {
		return usagef("%w", err)
	}
	return nil
}

// folderError says what to name in place of a folder.
func folderError(name string) error {
	config := filepath.Join(name, "config.json")
	if _, err := os.Stat(config); err == nil {
		return usagef("%s is a folder; name the file: %s", name, config)
	}
	return usagef("%s is a folder; name a file in it (memplan check takes folders)", name)
}

// job reads a spec and elaborates it.
func (o *source) job(c *cobra.Command, s *Streams, args []string) (*estimate.Job, error) {
	r, err := o.recipe(c, s, args)
	if err != nil {
		return nil, err
	}
	return r.Job()
}

// files reads the files that a spec names, whose paths start at its folder; as
// of the same commit, if the spec is of one.
func (o *source) files(s *Streams, path string) func(name string) ([]byte, error) {
	read := o.open(s, path)
	return func(name string) ([]byte, error) { return read(name, files.MaxText) }
}

// open is files for those that may be larger.
func (o *source) open(s *Streams, path string) func(name string, limit int64) ([]byte, error) {
	ref, inCommit, ofCommit := gitName(path)
	if ofCommit {
		path = inCommit
	}
	return func(name string, limit int64) ([]byte, error) {
		if o.config != nil && name == o.configPath {
			return o.config, nil
		}
		if name != "" && name == o.lengths { // of the command line
			return s.read(name, limit)
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
			if ofCommit {
				return readCommit(ref, name, limit)
			}
		}
		root, _, err := s.rootOf(path)
		if err != nil {
			return nil, err
		}
		return root.Read(name, limit)
	}
}
