package engine

// distribute puts DistributedDataParallel around the models that are trained.
func (j *job) distribute() {
	j.reducers = map[string]*reducer{}
	for _, m := range j.prog.Models {
		if j.prog.Wraps(m) {
			j.reducers[m.Name] = newReducer(j.interp, j.models[m.Name], &j.prog.Parallel)
		}
	}
}

// callModel calls a model of the step, through DistributedDataParallel if that is
// around it. It takes over the arguments.
func (j *job) callModel(name string, args []value) value {
	r := j.reducers[name]
	if r == nil {
		return j.callModule(j.model(name), nil, args)
	}
	held := j.holdAll(args)
	r.preForward()
	v := r.postForward(j.callModule(j.model(name), nil, args))
	j.letGoAll(held)
	return v
}

// model is the model of that name, as what runs now calls it.
func (j *job) model(name string) *module {
	if j.evaluating && j.evals[name] != nil {
		return j.evals[name]
	}
	return j.models[name]
}

// evalOnly reports whether a model is in eval mode while the job trains.
func (j *job) evalOnly(name string) bool {
	for _, m := range j.prog.Models {
		if m.Name == name {
			return m.Eval
		}
	}
	return false
}
