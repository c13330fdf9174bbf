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

// AllArgs are an optimizer's own arguments and those of its groups.
func (o *Optimizer) AllArgs() []any {
	all := []any{o.Args}
	for _, g := range o.Groups {
		all = append(all, g.Args)
	}
	return all
}

// Updates reports whether an optimizer is given the parameter at a path of one
// of its models.
func (o *Optimizer) Updates(path string) bool { return len(o.Params) == 0 || o.Params.Cover(path) }

// Group returns the index of the parameter group that takes the parameter at a
// path: the first that covers it, or the one that takes what all others leave;
// -1 if the optimizer is not given the parameter.
func (o *Optimizer) Group(path string) int {
	rest := 0
	if !o.Updates(path) {
		return -1
	}
	for i, g := range o.Groups {
		switch {
		case len(g.Params) == 0:
			rest = i
		case g.Params.Cover(path):
			return i
		}
	}
	return rest
}

// Trains reports whether an optimizer has a parameter that requires grad.
func (j *Job) Trains(o *Optimizer) bool {
	for _, name := range o.Models {
		m := j.model(name)
		if m.Adapters != nil {
			return true
		}
		for _, p := range m.Root.ParamPaths() {
			if o.Updates(p) && !m.Freezes(p) && !m.quantizes(p) {
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
		if m := j.model(name); len(m.Frozen) > 0 || m.Adapters != nil || m.Quantized != nil {
			return true
		}
	}
	return false
}
