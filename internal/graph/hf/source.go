package hf

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/hub"
	"github.com/memplan/memplan/internal/nearest"
	"github.com/memplan/memplan/internal/spec"
)

// Named is what a spec calls a model: hf, or a preset of this folder.
func Named(m *spec.Model) spec.String {
	if m.HF.Set {
		return m.HF
	}
	return m.Preset
}

// DefaultConfig is the configuration of a model type with the library's defaults.
func DefaultConfig(modelType string) []byte {
	return []byte(`{"model_type": ` + strconv.Quote(modelType) + `}`)
}

// config reads the configuration of a model: a file, a folder that has one, or what the hub
// knows by the name.
func (j *Job) config(m *spec.Model, f *Found) []byte {
	if !m.HF.Set {
		return DefaultConfig(strings.TrimPrefix(m.Preset.V, Folder))
	}
	name := m.HF.V
	err := error(&hub.UnknownError{Name: name})
	if j.ReadFile != nil {
		var text []byte
		if text, err = j.ReadFile(name); errors.Is(err, files.ErrNotRegular) {
			text, err = j.ReadFile(path.Join(name, "config.json"))
		}
		if err == nil {
			if j.Hub.Gives() {
				j.Spec.Errs.Failf(m.HF.At, "--model-config is for a model that is named; hf: %s is a file", name)
			}
			return text
		}
	}
	outside := errors.As(err, new(*files.OutsideError)) // which is the spec's own mistake
	if preset := strings.TrimPrefix(name, "preset:"); strings.HasPrefix(preset, Folder) && slices.Contains(j.Types, preset[len(Folder):]) {
		j.Spec.Errs.Failf(m.HF.At, "%s is a preset; write preset: %s", name, preset)
	}
	if hub.IsName(name) && !outside {
		c, notFound := j.Hub.Find(name)
		if notFound == nil {
			f.Configuration = fmt.Sprintf("%s, %s", c.Name, c.From)
			return c.Text
		}
		if t := hub.TypeOf(name); t != "" && !slices.Contains(j.Types, t) && errors.As(notFound, new(*hub.UnknownError)) {
			j.unknown(m, &Config{Type: t})
		}
		err = notFound
	} else if j.ReadFile == nil {
		j.Spec.Errs.Failf(m.HF.At, "no files can be read here")
	}
	f.Unread = !outside
	mean := ""
	if near := nearest.To(name, hub.Names()); near != "" && !hub.IsName(name) {
		mean = fmt.Sprintf("; did you mean %s?", near)
	}
	j.Spec.Errs.Failf(m.HF.At, "%v%s", err, mean)
	return nil
}
