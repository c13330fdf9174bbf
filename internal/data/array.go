package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Array is an array of samples.
type Array struct {
	Name  string // of the file, for messages
	Size  []int64
	DType tensor.DType
	data  []byte // little-endian
}

// Samples is how many there are.
func (a *Array) Samples() int64 { return a.Size[0] }

// Each is the number of elements of one sample.
func (a *Array) Each() int64 {
	n := int64(1)
	for _, s := range a.Size[1:] {
		n *= s
	}
	return n
}

// At returns the elements of a sample as numbers.
func (a *Array) At(sample int64, out []float64) {
	each, size := a.Each(), a.DType.Size()
	for i := range out {
		at := (sample*each + int64(i)) * size
		out[i] = a.DType.Number(a.data[at : at+size])
	}
}

// newArray checks that data holds what the sizes say.
func newArray(name string, size []int64, d tensor.DType, order binary.ByteOrder, data []byte) (*Array, error) {
	if len(size) == 0 || len(size) > tensor.MaxRank {
		return nil, fmt.Errorf("%s: an array of %d dimensions; 1 to %d are read", name, len(size), tensor.MaxRank)
	}
	n := d.Size()
	for _, s := range size {
		if s < 0 || s > 0 && n > math.MaxInt64/s {
			return nil, fmt.Errorf("%s: impossible sizes %s", name, tensor.SizeString(size))
		}
		n *= s
	}
	if int64(len(data)) != n {
		return nil, fmt.Errorf("%s: sizes %s of %v need %d bytes, the file has %d", name, tensor.SizeString(size), d, n, len(data))
	}
	if n == 0 {
		return nil, fmt.Errorf("%s: there are no samples", name)
	}
	if order == binary.BigEndian && d.Size() > 1 {
		data = slices.Clone(data)
		for e := data; len(e) > 0; e = e[d.Size():] {
			slices.Reverse(e[:d.Size()])
		}
	}
	return &Array{name, size, d, data}, nil
}

// MaxFile bounds what a file may hold, maxUnpacked what a compressed one may
// unpack to.
const (
	MaxFile     = 4 << 30
	maxUnpacked = 1 << 30
)

// unpack returns the content of a file that may be compressed, most bytes of it,
// and its name without .gz.
func unpack(name string, content []byte, most int64) (string, []byte, error) {
	if !bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
		return name, content, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return name, nil, fmt.Errorf("%s: %w", name, err)
	}
	out, err := io.ReadAll(io.LimitReader(z, most+1))
	if err != nil {
		return name, nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(out)) > most {
		return name, nil, fmt.Errorf("%s: more than %d bytes when unpacked", name, most)
	}
	return strings.TrimSuffix(name, ".gz"), out, nil
}

// File is what a file holds: arrays, by the role that they have in it, or a
// text.
type File struct {
	Name   string
	Images *Array // of CIFAR
	Labels *Array // of CIFAR: the last label byte
	Array  *Array
	Text   []byte
}

// cifarImage is the number of bytes of an image of 3×32×32.
const cifarImage = 3 * 32 * 32

// Read reads a file of any of the formats.
func Read(name string, content []byte) (*File, error) { return read(name, content, maxUnpacked) }

func read(name string, content []byte, most int64) (*File, error) {
	plain, b, err := unpack(name, content, most)
	if err != nil {
		return nil, err
	}
	f := &File{Name: name}
	switch {
	case len(b) == 0:
		return nil, fmt.Errorf("%s: the file is empty", name)
	case bytes.HasPrefix(b, []byte("\x93NUMPY")):
		f.Array, err = readNPY(name, b)
	case len(b) >= 4 && b[0] == 0 && b[1] == 0 && idxTypes[b[2]] != nil:
		f.Array, err = readIDX(name, b)
	case path.Ext(plain) == ".bin":
		err = f.readCIFAR(b)
	case bytes.IndexByte(b, 0) >= 0:
		return nil, fmt.Errorf("%s: not a format that is known: IDX, npy, CIFAR binary (.bin) or text", name)
	default:
		f.Text = b
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) readCIFAR(b []byte) (err error) {
	for labels := 1; labels <= 2; labels++ {
		record := labels + cifarImage
		if len(b)%record != 0 {
			continue
		}
		n := int64(len(b) / record)
		images, names := make([]byte, 0, n*cifarImage), make([]byte, 0, n)
		for i := 0; i < len(b); i += record {
			names = append(names, b[i+labels-1])
			images = append(images, b[i+labels:i+record]...)
		}
		if f.Images, err = newArray(f.Name, []int64{n, 3, 32, 32}, tensor.Uint8, binary.BigEndian, images); err != nil {
			return err
		}
		f.Labels, err = newArray(f.Name, []int64{n}, tensor.Uint8, binary.BigEndian, names)
		return err
	}
	return fmt.Errorf("%s: %d bytes are no whole number of CIFAR records (%d or %d bytes)", f.Name, len(b), cifarImage+1, cifarImage+2)
}
