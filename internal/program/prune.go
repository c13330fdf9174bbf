package program

// Pruning masks the weights of layers before the model is moved to the device
// (torch.nn.utils.prune.l1_unstructured).
type Pruning struct {
	Layers []Place
	Amount float64

	Modules, Except Patterns // of the layers' paths, for printing
}
