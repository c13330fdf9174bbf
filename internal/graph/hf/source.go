package hf

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/hub"
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
	if outside := (*files.OutsideError)(nil); hub.IsName(name) && !errors.As(err, &outside) {
		var c *hub.Configuration
		if c, err = j.Hub.Find(name); err == nil {
			f.Configuration = fmt.Sprintf("%s, %s", c.Name, c.From)
			return c.Text
		}
	} else if j.ReadFile == nil {
		j.Spec.Errs.Failf(m.HF.At, "no files can be read here")
	}
	f.Unread = !errors.As(err, new(*files.OutsideError)) // that one is the spec's own mistake
	j.Spec.Errs.Failf(m.HF.At, "%v", err)
	return nil
}
