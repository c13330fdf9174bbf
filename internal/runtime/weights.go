package runtime

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Weights are the parameters and buffers of a job's models, in the order of
// their making.
type Weights struct {
	x     *Executor
	names []string
	of    map[string]*op.Tensor
}

// Names lists them: paths from the model, as in Module.state_dict; one that
// several modules share stands under the name in each of them.
func (w *Weights) Names() []string { return w.names }

// Read returns the elements of one, row-major.
func (w *Weights) Read(name string) ([]float64, error) {
	t := w.of[name]
	if t == nil {
		return nil, fmt.Errorf("there is no parameter %q", name)
	}
	return w.x.Values(t)
}

// WriteSafetensors writes the weights, in their order.
func (w *Weights) WriteSafetensors(out io.Writer) error {
	return writeSafetensors(out, nil, w.stored())
}

func (w *Weights) stored() []stored {
	var out []stored
	for _, name := range w.names {
		t := w.of[name]
		out = append(out, stored{name, t.DType, t.Size.Slice(), func() ([]byte, error) { return w.x.rowMajor(t) }})
	}
	return out
}

// rowMajor are the bytes of a tensor's elements.
func (x *Executor) rowMajor(t *op.Tensor) ([]byte, error) {
	if !t.IsContiguous() {
		v, err := x.Read(t)
		return tensor.Encode(t.DType, v), err
	}
	data := make([]byte, t.Numel()*t.DType.Size())
	if len(data) == 0 {
		return nil, nil
	}
	return data, x.read(data, x.operand(t))
}

// given are the weights of a file, with which a job starts. They have the names of
// Module.state_dict; of those that share memory one is enough.
type given struct {
	file *Safetensors
	set  map[int32]bool   // blocks
	none map[int32]string // blocks, by the first name that the file does not have
	bad  []string
}

// take sets a parameter or buffer to what the file has under its name, if anything.
func (g *given) take(x *Executor, t *op.Tensor, name string, shared bool) (bool, error) {
	d, shape, data, ok, err := g.file.Bytes(name)
	id := autograd.BlockOf(t)
	switch {
	case err != nil:
		return false, err
	case !ok:
		if !shared {
			g.none[id] = name
		}
		return false, nil
	case !slices.Equal(shape, t.Size.Slice()):
		g.bad = append(g.bad, fmt.Sprintf("%s has shape %v in the file and %v in the model", name, shape, t.Size.Slice()))
		return true, nil
	}
	g.set[id] = true
	return true, x.Write(t, tensor.Decode(d, data))
}

// check reports what the file or the model lacks.
func (g *given) check(w *Weights) error {
	var missing, unknown []string
	for id, name := range g.none {
		if !g.set[id] {
			missing = append(missing, name)
		}
	}
	for _, name := range g.file.Names() {
		if !slices.Contains(w.names, name) && !strings.HasPrefix(name, blockPrefix) {
			unknown = append(unknown, name)
		}
	}
	bad := g.bad
	if len(missing) > 0 {
		slices.Sort(missing)
		bad = append(bad, "the file has no "+few(missing, ", "))
	}
	if len(unknown) > 0 {
		bad = append(bad, "the model has no "+few(unknown, ", "))
	}
	if len(bad) > 0 {
		return fmt.Errorf("the weights are not those of this model: %s", few(bad, "; "))
	}
	return nil
}

// few joins some of many texts.
func few(list []string, by string) string {
	const most = 5
	if len(list) > most {
		list = append(slices.Clone(list[:most]), fmt.Sprintf("%d more", len(list)-most))
	}
	return strings.Join(list, by)
}
