package pickle

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Write writes a value as one pickle of protocol 4. A list or dict that is in several places is written
// once, and so is a string. What PyTorch's memory_viz reads is no more than what Write writes; it takes
// integers up to 2⁵³.
func Write(w io.Writer, v Value) error {
	p := &writer{w: bufio.NewWriterSize(w, 1<<16), memo: map[any]int{}}
	p.write("\x80\x04")
	p.value(v)
	p.write(".")
	if p.err != nil {
		return p.err
	}
	return p.w.Flush()
}

type writer struct {
	w    *bufio.Writer
	memo map[any]int // pointers and strings
	err  error
}

func (p *writer) write(s string) { p.w.WriteString(s) } //nolint:errcheck // bufio keeps the error for Flush

// number writes an opcode and n in size bytes, little-endian.
func (p *writer) number(op byte, n uint64, size int) {
	var b [9]byte
	b[0] = op
	binary.LittleEndian.PutUint64(b[1:], n)
	p.w.Write(b[:1+size]) //nolint:errcheck // as in write
}

// known takes a value from the memo, if it is there.
func (p *writer) known(key any) bool {
	i, ok := p.memo[key]
	switch {
	case !ok:
	case i < 1<<8:
		p.number('h', uint64(i), 1)
	default:
		p.number('j', uint64(i), 4)
	}
	return ok
}

// remember puts what was just written into the memo.
func (p *writer) remember(key any) {
	p.memo[key] = len(p.memo)
	p.write("\x94")
}

// batch is how many items are added to a list or dict at once: readers keep them on a stack.
const batch = 1000

func (p *writer) value(v Value) {
	switch v := v.(type) {
	case nil:
		p.write("N")
	case bool:
		if v {
			p.write("\x88")
		} else {
			p.write("\x89")
		}
	case int64:
		p.integer(v)
	case float64:
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], math.Float64bits(v))
		p.write("G" + string(b[:]))
	case string:
		p.string(v)
	case *List:
		if p.known(v) {
			return
		}
		p.write("]")
		p.remember(v)
		for i := 0; i < len(v.Items); i += batch {
			p.write("(")
			for _, item := range v.Items[i:min(i+batch, len(v.Items))] {
				p.value(item)
			}
			p.write("e")
		}
	case Tuple:
		p.write("(")
		for _, item := range v {
			p.value(item)
		}
		p.write("t")
	case *Dict:
		if p.known(v) {
			return
		}
		p.write("}")
		p.remember(v)
		for i := 0; i < len(v.Keys); i += batch {
			p.write("(")
			for k := i; k < min(i+batch, len(v.Keys)); k++ {
				p.value(v.Keys[k])
				p.value(v.Values[k])
			}
			p.write("u")
		}
	default:
		p.err = fmt.Errorf("pickle: a value of type %T cannot be written", v)
	}
}

func (p *writer) integer(n int64) {
	switch {
	case n >= 0 && n < 1<<8:
		p.number('K', uint64(n), 1)
	case n >= 0 && n < 1<<16:
		p.number('M', uint64(n), 2)
	case n >= math.MinInt32 && n <= math.MaxInt32:
		p.number('J', uint64(n), 4)
	default:
		p.write("\x8a")
		p.number(8, uint64(n), 8)
	}
}

func (p *writer) string(s string) {
	if p.known(s) {
		return
	}
	if len(s) < 1<<8 {
		p.number(0x8c, uint64(len(s)), 1)
	} else {
		p.number('X', uint64(len(s)), 4)
	}
	p.write(s)
	p.remember(s)
}
