package techniques

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/note"
)

// Converted warns of conversions after the load that are of no module.
func (j *Job) Converted() {
	for i, m := range j.Models {
		if m.Use.Load == nil {
			continue
		}
		paths := j.Job.Models[i].Root.ModulePaths()
		for k := range m.Use.Load.Convert {
			if !slices.ContainsFunc(paths, m.Loaded.Convert[k].Modules.Fits) {
				*j.Warnings = append(*j.Warnings, note.NoEffect.New("no module of %s matches %s", m.Name, strings.Join(m.Loaded.Convert[k].Modules, " or ")).Of("model.load.convert"))
			}
		}
	}
}
