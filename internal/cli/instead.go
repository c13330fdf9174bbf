package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/hub"
	"github.com/memplan/memplan/internal/nearest"
	"github.com/memplan/memplan/internal/oom"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/specs"
)

// What people write in the place of a spec, and what to write instead.

// numbered are names such as resnet50, in which the number is a param.
var numbered = regexp.MustCompile(`^([a-z_]+?)[-_]?([0-9]+)$`)

// presetFor is how the command line writes the model of a name that is nearly a
// preset's, "" if none is near: resnet50 is preset:resnet with another depth.
func presetFor(name string) string {
	name = strings.ToLower(name)
	if slices.Contains(specs.Names(), name) {
		return presetPrefix + name
	}
	if m := numbered.FindStringSubmatch(name); m != nil && slices.Contains(specs.Names(), m[1]) {
		n, err := strconv.ParseInt(m[2], 10, 64)
		text, textErr := specs.Preset(m[1])
		if err == nil && textErr == nil {
			s, err := spec.Parse(m[1], text, spec.Options{Params: map[string]any{"depth": n}})
			if err == nil && slices.Contains(s.ParamNames(), "depth") {
				return fmt.Sprintf("%s%s --set params.depth=%d", presetPrefix, m[1], n)
			}
		}
	}
	return ""
}

// unknownPreset says what presets there are.
func unknownPreset(name string) error {
	if p := presetFor(name); p != "" {
		return usagef("unknown preset %q; write %s", name, p)
	}
	return usagef("unknown preset %q%s (known: %s)", name, didYouMean(name, specs.Names()), strings.Join(specs.Names(), ", "))
}

// noSource says what to write in place of the name of a file that is not there;
// err, that of reading it, if nothing is known.
func noSource(name string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		var none *noFileError
		if !errors.As(err, &none) {
			return err
		}
	}
	if prefix, rest, ok := strings.Cut(name, ":"); ok && nearest.To(prefix+":", []string{presetPrefix}) != "" {
		if p := presetFor(rest); p != "" || strings.HasPrefix(rest, hfPreset) {
			if p == "" {
				p = presetPrefix + rest
			}
			return usagef("there is no file %q; the preset is written %s", name, p)
		}
	}
	if p := presetFor(name); p != "" {
		return usagef("there is no file %q; the preset is written %s", name, p)
	}
	if isPython(name) {
		return pythonError(name)
	}
	if t := hubType(name); t != "" && filepath.Base(name) == name && filepath.Ext(name) == "" {
		return usagef("there is no file %q; models are named as on the hub (memplan list models %s), and %s%s%s has the default sizes of that type", name, t, presetPrefix, hfPreset, t)
	}
	if hub.IsName(name) {
		near, known := "", hub.TypeOf(name)
		if known != "" && !slices.Contains(specs.HFTypes(), known) {
			return unknownType(name, known)
		}
		if t := hubType(name); t != "" && known == "" {
			near = fmt.Sprintf(" (if its model_type is %s, %s%s%[1]s has the default sizes)", t, presetPrefix, hfPreset)
		}
		return usagef("%w%s", &hub.UnknownError{Name: name}, near)
	}
	return err
}

// hubType is the model type that the name of a model on the hub begins with, the
// longest of several; "" if none does.
func hubType(name string) string {
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(s))
	}
	model, best := plain(filepath.Base(name)), ""
	for _, t := range specs.HFTypes() {
		if p := plain(t); strings.HasPrefix(model, p) && len(t) > len(best) {
			best = t
		}
	}
	return best
}

// isPython reports whether a name is that of a Python file.
func isPython(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".py" || ext == ".ipynb"
}

func pythonError(name string) error {
	from := "To write a spec, start from one that is near: memplan schema --desugar preset:gpt > my.yaml, then memplan estimate my.yaml (memplan list presets shows others; memplan also takes a config.json of Hugging Face)"
	if filepath.Ext(name) != ".py" {
		return usagef("%s is Python, and memplan reads a spec in YAML that says the same. %s", name, from)
	}
	return usagef("%s is Python, which is recorded first, without a GPU: memplan record -- python %s, then memplan estimate %s. %s",
		name, printable.File(name), printable.File(outName([]string{name})), from)
}

// notSpec tells files that one might take for specs.
func notSpec(name string, text []byte) error {
	if isPython(name) {
		return pythonError(name)
	}
	switch filepath.Ext(name) {
	case ".log", ".txt", ".out", ".err":
		if len(oom.Parse(string(text))) > 0 {
			return usagef("%s is a log, not a spec; memplan explain %s tells what it says", name, printable.File(name))
		}
	}
	var diffusers struct {
		Class   string `json:"_class_name"`
		Version string `json:"_diffusers_version"`
	}
	if json.Unmarshal(text, &diffusers) == nil && diffusers.Version != "" {
		return usagef("%s is a configuration of diffusers (%s), which memplan does not read; the U-Net of a diffusion model is preset:diffusion: "+
			"memplan estimate preset:diffusion --set params.img=64 --set params.base=128 (memplan explain preset:diffusion shows its params)", name, diffusers.Class)
	}
	return nil
}
