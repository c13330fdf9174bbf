package data

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

func dtype(d tensor.DType) *tensor.DType { return &d }

// idxTypes are the element types of IDX by their code.
var idxTypes = map[byte]*tensor.DType{
	0x08: dtype(tensor.Uint8), 0x09: dtype(tensor.Int8), 0x0b: dtype(tensor.Int16),
	0x0c: dtype(tensor.Int32), 0x0d: dtype(tensor.Float32), 0x0e: dtype(tensor.Float64),
}

// readIDX reads the format of MNIST (yann.lecun.com/exdb/mnist).
func readIDX(name string, b []byte) (*Array, error) {
	d, n := idxTypes[b[2]], int(b[3])
	b = b[4:]
	if len(b) < 4*n {
		return nil, fmt.Errorf("%s: the file ends in its sizes", name)
	}
	size := make([]int64, n)
	for i := range size {
		size[i] = int64(binary.BigEndian.Uint32(b[4*i:]))
	}
	return newArray(name, size, *d, binary.BigEndian, b[4*n:])
}

// npyTypes are the element types of npy by kind and size.
var npyTypes = map[string]tensor.DType{
	"u1": tensor.Uint8, "i1": tensor.Int8, "b1": tensor.Bool, "i2": tensor.Int16, "i4": tensor.Int32, "i8": tensor.Int64,
	"f4": tensor.Float32, "f8": tensor.Float64,
}

var npyHeader = struct{ descr, order, shape *regexp.Regexp }{
	regexp.MustCompile(`'descr':\s*'([<>=|]?)([a-zA-Z]\d*)'`),
	regexp.MustCompile(`'fortran_order':\s*(True|False)`),
	regexp.MustCompile(`'shape':\s*\(([^)]*)\)`),
}

// readNPY reads the format of numpy.save (numpy/lib/format.py).
func readNPY(name string, b []byte) (*Array, error) {
	fail := func(format string, args ...any) (*Array, error) {
		return nil, fmt.Errorf("%s: npy: %s", name, fmt.Sprintf(format, args...))
	}
	if len(b) < 12 {
		return fail("the file ends in its header")
	}
	at, n := 10, int(binary.LittleEndian.Uint16(b[8:]))
	if b[6] > 1 {
		at, n = 12, int(binary.LittleEndian.Uint32(b[8:]))
	}
	if n < 0 || n > len(b)-at {
		return fail("the file ends in its header")
	}
	header := string(b[at : at+n])
	descr, order, shape := npyHeader.descr.FindStringSubmatch(header), npyHeader.order.FindStringSubmatch(header), npyHeader.shape.FindStringSubmatch(header)
	if descr == nil || order == nil || shape == nil {
		return fail("the header %q has no descr, fortran_order and shape", strings.TrimSpace(header))
	}
	d, ok := npyTypes[descr[2]]
	if !ok {
		return fail("elements of type %s are not read; allowed are u1, i1, b1, i2, i4, i8, f4, f8", descr[2])
	}
	if order[1] == "True" {
		return fail("the array is in Fortran order; save it with numpy.ascontiguousarray")
	}
	var size []int64
	for _, s := range strings.Split(shape[1], ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fail("shape (%s)", shape[1])
		}
		size = append(size, v)
	}
	var bytes binary.ByteOrder = binary.LittleEndian
	if descr[1] == ">" {
		bytes = binary.BigEndian
	}
	return newArray(name, size, d, bytes, b[at+n:])
}
