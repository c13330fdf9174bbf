package graph

// techniques changes the models, which are elaborated, as the job's spec asks.
func (el *elaborator) techniques() {
	el.freeze()
}
