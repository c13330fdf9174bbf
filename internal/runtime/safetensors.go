package runtime

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// The format of github.com/huggingface/safetensors: the length of a header, little-endian in
// eight bytes, the header in JSON, and the elements.

// maxHeader bounds the header, as the library does.
const maxHeader = 100_000_000

// metadataKey is the entry of a header that is no tensor.
const metadataKey = "__metadata__"

// safeTypes are the names of element types in safetensors.
var safeTypes = map[tensor.DType]string{
	tensor.Uint8: "U8", tensor.Int8: "I8", tensor.Int16: "I16", tensor.Int32: "I32", tensor.Int64: "I64", tensor.Bool: "BOOL",
	tensor.Float16: "F16", tensor.BFloat16: "BF16", tensor.Float32: "F32", tensor.Float64: "F64",
}

type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// stored is a tensor that is to be written.
type stored struct {
	name  string
	dtype tensor.DType
	shape []int64
	data  func() ([]byte, error)
}

func (t *stored) bytes() int64 {
	n := t.dtype.Size()
	for _, d := range t.shape {
		n *= d
	}
	return n
}

func writeSafetensors(out io.Writer, metadata map[string]string, list []stored) error {
	header := map[string]any{}
	if metadata != nil {
		header[metadataKey] = metadata
	}
	at := int64(0)
	for i := range list {
		t := &list[i]
		n := t.bytes()
		header[t.name] = entry{safeTypes[t.dtype], append([]int64{}, t.shape...), [2]int64{at, at + n}}
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
	for i := range list {
		data, err := list[i].data()
		if err != nil {
			return err
		}
		if _, err := out.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// Safetensors is a file of tensors, which are read when they are asked for.
type Safetensors struct {
	Metadata map[string]string
	entries  map[string]entry
	data     *io.SectionReader
}

// OpenSafetensors reads the header of a file of so many bytes.
func OpenSafetensors(r io.ReaderAt, size int64) (*Safetensors, error) {
	var length [8]byte
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, size), length[:]); err != nil {
		return nil, notSafetensors(err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader || int64(n) > size-8 {
		return nil, fmt.Errorf("no safetensors: the header is said to have %d bytes, and the file has %d", n, size)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(r, 8, int64(n)), text); err != nil {
		return nil, notSafetensors(err)
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(text, &header); err != nil {
		return nil, fmt.Errorf("no safetensors: the header: %w", err)
	}
	begin := 8 + int64(n)
	f := &Safetensors{entries: map[string]entry{}, data: io.NewSectionReader(r, begin, size-begin)}
	for name, text := range header {
		var err error
		if name == metadataKey {
			err = json.Unmarshal(text, &f.Metadata)
		} else {
			f.entries[name], err = readEntry(text, f.data.Size())
		}
		if err != nil {
			return nil, fmt.Errorf("safetensors, %q: %w", name, err)
		}
	}
	return f, nil
}

func notSafetensors(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("no safetensors: the file is too short")
	}
	return err
}

func readEntry(text []byte, size int64) (entry, error) {
	var e entry
	if err := json.Unmarshal(text, &e); err != nil {
		return e, err
	}
	d, ok := safeType(e.DType)
	if !ok {
		return e, fmt.Errorf("type %q is not known; allowed are %v", e.DType, slices.Sorted(maps.Values(safeTypes)))
	}
	n := d.Size()
	for _, s := range e.Shape {
		if s < 0 || n > 0 && s > int64(tensor.MaxBytes)/n {
			return e, fmt.Errorf("shape %v has no size", e.Shape)
		}
		n *= s
	}
	if from, to := e.Offsets[0], e.Offsets[1]; from < 0 || to < from || to > size || to-from != n {
		return e, fmt.Errorf("bytes %d to %d of %d do not hold a tensor of shape %v and type %s", from, to, size, e.Shape, e.DType)
	}
	return e, nil
}

func safeType(name string) (tensor.DType, bool) {
	for d, s := range safeTypes {
		if s == name {
			return d, true
		}
	}
	return 0, false
}

// Names are those of the tensors, sorted.
func (f *Safetensors) Names() []string { return slices.Sorted(maps.Keys(f.entries)) }

// Bytes are the elements of a tensor, row-major; ok is false if the file has none of that name.
func (f *Safetensors) Bytes(name string) (d tensor.DType, shape []int64, data []byte, ok bool, err error) {
	e, ok := f.entries[name]
	if !ok {
		return 0, nil, nil, false, nil
	}
	d, _ = safeType(e.DType)
	data = make([]byte, e.Offsets[1]-e.Offsets[0])
	_, err = f.data.ReadAt(data, e.Offsets[0])
	if errors.Is(err, io.EOF) && len(data) == 0 {
		err = nil
	}
	return d, e.Shape, data, true, err
}
