// Package layers is the table of the layers of torch.nn, each one definition: the
// signature of its constructor, what else it is (nn.Layer), and the body of its
// forward. Layers that are made of others take them as values; who reads a spec finds
// them by name ([Lookup]). Nothing of a spec or of a job enters.
package layers
