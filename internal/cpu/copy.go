package cpu

import (
	encoding "encoding/binary"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// integer reads an element of a type that is not floating.
func (l *launch) integer(operand int, d tensor.DType, i int) int64 {
	data := l.data[operand][int64(i)*d.Size():]
	switch d {
	case tensor.Int64:
		return int64(encoding.LittleEndian.Uint64(data))
	case tensor.Int32:
		return int64(int32(encoding.LittleEndian.Uint32(data)))
	case tensor.Int16:
		return int64(int16(encoding.LittleEndian.Uint16(data)))
	case tensor.Int8:
		return int64(int8(data[0]))
	}
	return int64(data[0])
}

// putInteger writes the low bits of a number, or whether it is not 0.
func (l *launch) putInteger(operand int, d tensor.DType, i int, v int64) {
	data := l.data[operand][int64(i)*d.Size():]
	switch d {
	case tensor.Int64:
		encoding.LittleEndian.PutUint64(data, uint64(v))
	case tensor.Int32:
		encoding.LittleEndian.PutUint32(data, uint32(v))
	case tensor.Int16:
		encoding.LittleEndian.PutUint16(data, uint16(v))
	case tensor.Bool:
		data[0] = 0
		if v != 0 {
			data[0] = 1
		}
	default:
		data[0] = byte(v)
	}
}

// number reads an element of any type.
func (l *launch) number(operand int, i int) float64 {
	d := l.call.T[operand].DType
	return d.Number(l.data[operand][int64(i)*d.Size():])
}

// bits are the integers of the sizes of elements, for kernels that move them.
type bits interface {
	uint8 | uint16 | uint32 | uint64
}

// moving is a row of a kernel that moves elements as they are.
func moving(b8, b16, b32, b64 runner) row {
	r := row{run: map[tensor.DType]runner{}}
	bySize := map[int64]runner{1: b8, 2: b16, 4: b32, 8: b64}
	for _, d := range everyType {
		r.run[d] = bySize[d.Size()]
	}
	return r
}

// element is a number as the bits of an operand's type.
func element[B bits](d tensor.DType, v float64) B {
	var data [8]byte
	d.Put(data[:], v)
	return B(encoding.LittleEndian.Uint64(data[:]))
}

func fill[B bits](l *launch) error {
	y, v := view[B](l, 0), element[B](l.call.T[0].DType, l.call.F[0])
	l.over().each(func(at []int, n int, step []int) {
		y := y[at[0]:]
		if step[0] == 1 {
			y = y[:n]
			for i := range y {
				y[i] = v
			}
			return
		}
		for i := range n {
			y[i*step[0]] = v
		}
	})
	return nil
}

func move[B bits](l *launch) error {
	y, a := view[B](l, 0), view[B](l, 1)
	l.over().each(func(at []int, n int, step []int) {
		y, a := y[at[0]:], a[at[1]:]
		if step[0] == 1 && step[1] == 1 {
			copy(y[:n], a[:n])
			return
		}
		for i := range n {
			y[i*step[0]] = a[i*step[1]]
		}
	})
	return nil
}

// convert copies from any type to any other.
func convert(l *launch) error {
	to, from := l.call.T[0].DType, l.call.T[1].DType
	switch {
	case to == tensor.BFloat16 && from == tensor.Float32:
		return convertBy(l, tensor.BFloat16Bits)
	case to == tensor.Float32 && from == tensor.BFloat16:
		return convertBy(l, tensor.FromBFloat16)
	case to == tensor.Float16 && from == tensor.Float32:
		return convertBy(l, tensor.Float16Bits)
	case to == tensor.Float32 && from == tensor.Float16:
		return convertBy(l, tensor.FromFloat16)
	case to == tensor.Float64 && from == tensor.Float32:
		return convertBy(l, func(v float32) float64 { return float64(v) })
	case to == tensor.Float32 && from == tensor.Float64:
		return convertBy(l, func(v float64) float32 { return float32(v) })
	}
	whole := !to.IsFloating() && !from.IsFloating()
	l.over().each(func(at []int, n int, step []int) {
		for i := range n {
			y, a := at[0]+i*step[0], at[1]+i*step[1]
			if whole {
				l.putInteger(0, to, y, l.integer(1, from, a))
			} else {
				to.Put(l.data[0][int64(y)*to.Size():], l.number(1, a))
			}
		}
	})
	return nil
}

func convertBy[A, Y any](l *launch, f func(A) Y) error {
	y, a := view[Y](l, 0), view[A](l, 1)
	l.over().each(func(at []int, n int, step []int) {
		y, a := y[at[0]:], a[at[1]:]
		for i := range n {
			y[i*step[0]] = f(a[i*step[1]])
		}
	})
	return nil
}

// copied copies elements as they are, or converts them.
func copied(l *launch) error {
	d := l.call.T[0].DType
	if d != l.call.T[1].DType {
		return convert(l)
	}
	return sameType.run[d](l)
}

var (
	sameType = moving(move[uint8], move[uint16], move[uint32], move[uint64])
	filling  = moving(fill[uint8], fill[uint16], fill[uint32], fill[uint64])
)

func maskedFill[B bits](l *launch) error {
	y, a, mask, v := view[B](l, 0), view[B](l, 1), view[uint8](l, 2), element[B](l.call.T[0].DType, l.call.F[0])
	l.over().each(func(at []int, n int, step []int) {
		y, a, mask := y[at[0]:], a[at[1]:], mask[at[2]:]
		for i := range n {
			if mask[i*step[2]] != 0 {
				y[i*step[0]] = v
			} else {
				y[i*step[0]] = a[i*step[1]]
			}
		}
	})
	return nil
}

func where[B bits](l *launch) error {
	y, mask, a, b := view[B](l, 0), view[uint8](l, 1), view[B](l, 2), view[B](l, 3)
	l.over().each(func(at []int, n int, step []int) {
		y, mask, a, b := y[at[0]:], mask[at[1]:], a[at[2]:], b[at[3]:]
		for i := range n {
			if mask[i*step[1]] != 0 {
				y[i*step[0]] = a[i*step[2]]
			} else {
				y[i*step[0]] = b[i*step[3]]
			}
		}
	})
	return nil
}

// triangle keeps the elements at whose row and column keep holds.
func triangle[B bits](keep func(row, column, diagonal int) bool) runner {
	return func(l *launch) error {
		size := l.call.T[0].Size
		if size.Len() < 2 {
			return l.wrongRank(0, 2)
		}
		rows, columns, diagonal := int(size.At(-2)), int(size.At(-1)), int(l.call.I[0])
		y, a := view[B](l, 0), view[B](l, 1)
		l.overPlaces().each(func(at []int, n int, step []int) {
			y, a := y[at[0]:], a[at[1]:]
			for i := range n {
				v, place := a[i*step[1]], at[2]+i*step[2]
				if !keep(place/columns%rows, place%columns, diagonal) {
					v = 0
				}
				y[i*step[0]] = v
			}
		})
		return nil
	}
}

func lower(row, column, diagonal int) bool { return column-row <= diagonal }
func upper(row, column, diagonal int) bool { return column-row >= diagonal }

// copyRows move and convert elements of all types.
var copyRows = map[*kernel.Kernel]row{
	kernel.Fill:       filling,
	kernel.Copy:       everything(0, true, copied),
	kernel.MaskedFill: moving(maskedFill[uint8], maskedFill[uint16], maskedFill[uint32], maskedFill[uint64]),
	kernel.Where:      moving(where[uint8], where[uint16], where[uint32], where[uint64]),
	kernel.Tril:       moving(triangle[uint8](lower), triangle[uint16](lower), triangle[uint32](lower), triangle[uint64](lower)),
	kernel.Triu:       moving(triangle[uint8](upper), triangle[uint16](upper), triangle[uint32](upper), triangle[uint64](upper)),
}
