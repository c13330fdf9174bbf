package program

// Freezes reports whether the parameter at a path does not require grad.
func (m *Model) Freezes(path string) bool { return m.Frozen.Cover(path) && !m.Trained.Cover(path) }

// model returns the model of that name.
func (j *Job) model(name string) *Model {
	for _, m := range j.Models {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// Trains reports whether an optimizer has a parameter that requires grad.
func (j *Job) Trains(o *Optimizer) bool {
	for _, name := range o.Models {
		m := j.model(name)
		for _, p := range m.Root.ParamPaths() {
			if !m.Freezes(p) {
				return true
			}
		}
	}
	return false
}

// FreezesAny reports whether an optimizer's models hold parameters that do not
// require grad.
func (j *Job) FreezesAny(o *Optimizer) bool {
	for _, name := range o.Models {
		if len(j.model(name).Frozen) > 0 {
			return true
		}
	}
	return false
}
