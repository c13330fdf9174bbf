package graph

// techniques changes the models, which are elaborated, as the job's spec asks.
func (el *elaborator) techniques() {
	el.optimParams()
	el.quantize()
	el.prune()
	el.freeze()
	el.lora()
	el.trains()
	el.offload()
	el.optimGiven()
	el.inBackward()
	el.evaluation()
	el.checkpoint()
}
