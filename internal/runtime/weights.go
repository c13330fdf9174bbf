package runtime

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

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

// safeTypes are the names of element types in safetensors.
var safeTypes = map[tensor.DType]string{
	tensor.Uint8: "U8", tensor.Int8: "I8", tensor.Int16: "I16", tensor.Int32: "I32", tensor.Int64: "I64", tensor.Bool: "BOOL",
	tensor.Float16: "F16", tensor.BFloat16: "BF16", tensor.Float32: "F32", tensor.Float64: "F64",
}

// WriteSafetensors writes the weights in the format of
// github.com/huggingface/safetensors: the length of a header, little-endian in
// eight bytes, the header in JSON, and the elements.
func (w *Weights) WriteSafetensors(out io.Writer) error {
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	header := map[string]entry{}
	at := int64(0)
	for _, name := range w.names {
		t := w.of[name]
		n := t.Numel() * t.DType.Size()
		header[name] = entry{safeTypes[t.DType], append([]int64{}, t.Size.Slice()...), [2]int64{at, at + n}}
		at += n
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	if err := binary.Write(out, binary.LittleEndian, uint64(len(text))); err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	for _, name := range w.names {
		t := w.of[name]
		if t.Numel() == 0 {
			continue
		}
		data := make([]byte, t.Numel()*t.DType.Size())
		if err := w.x.read(data, w.x.operand(t)); err != nil {
			return err
		}
		if _, err := out.Write(data); err != nil {
			return err
		}
	}
	return nil
}
