// Package pickle reads pickles of Python that hold plain data, and nothing else: None, booleans,
// numbers, strings, bytes, lists, tuples and dicts. A pickle is a program, and whatever it asks for beyond
// data (a class, a call, a persistent object) is an error: nothing is looked up, and nothing runs.
//
// What is read takes memory in proportion to the input: no length in it is believed before its bytes
// are there, and shared objects stay shared. The opcodes are those of protocols 2 to 5
// (pickletools.py of CPython 3.14); those of text, which protocols 0 and 1 write, are refused.
package pickle

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Value is what a pickle holds: nil (None), bool, int64, float64, string, Bytes, *List, Tuple or *Dict.
type Value any

// Bytes is an object of class bytes or bytearray.
type Bytes string

// List is a list. It is a pointer where it is a Value, as one list may be in several places,
// and in itself.
type List struct{ Items []Value }

// Tuple is a tuple.
type Tuple []Value

// Dict is a dict, in its order. A key that is set twice is there twice, and Get finds the last one.
type Dict struct{ Keys, Values []Value }

// Get is the value of a key that is a string; false if there is none.
func (d *Dict) Get(key string) (Value, bool) {
	for i := len(d.Keys) - 1; i >= 0; i-- {
		if k, ok := d.Keys[i].(string); ok && k == key {
			return d.Values[i], true
		}
	}
	return nil, false
}

// Error is a pickle that cannot be read.
type Error struct {
	Offset int64 // of the opcode, in bytes from the start
	Msg    string
}

func (e *Error) Error() string { return fmt.Sprintf("pickle, byte %d: %s", e.Offset, e.Msg) }

// Read reads one pickle. What follows it is not read. An error about the contents is an *Error.
func Read(r io.Reader) (Value, error) {
	m := &machine{r: bufio.NewReaderSize(r, 1<<16)}
	v, err := m.run()
	switch {
	case err == nil:
		return v, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &Error{m.at, "the file ends before the pickle does"}
	case errors.As(err, new(refusal)):
		return nil, &Error{m.at, err.Error()}
	}
	return nil, err
}

// refusal is the text of an error about the contents.
type refusal string

func (e refusal) Error() string { return string(e) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// machine is the stack machine that a pickle is a program of.
type machine struct {
	r     *bufio.Reader
	pos   int64 // bytes read
	at    int64 // of the opcode at work
	stack []Value
	marks []int // lengths of the stack
	memo  []Value
	text  []byte // of the string that is being read
}

func (m *machine) run() (Value, error) {
	for {
		m.at = m.pos
		op, err := m.byte()
		if err != nil {
			return nil, err
		}
		if op == '.' {
			if len(m.marks) > 0 {
				return nil, refuse("it ends within a list or dict")
			}
			return m.pop()
		}
		if err := m.step(op); err != nil {
			return nil, err
		}
	}
}

// step runs one opcode.
func (m *machine) step(op byte) error {
	switch op {
	case 0x80: // PROTO
		v, err := m.byte()
		if err == nil && (v < 2 || v > 5) {
			return refuse("its protocol is %d; allowed are 2 to 5", v)
		}
		return err
	case 0x95: // FRAME: how much is read at once
		_, err := m.uint(8)
		return err
	case 'N':
		return m.push(nil)
	case 0x88, 0x89:
		return m.push(op == 0x88)
	case 'K':
		return m.integer(1)
	case 'M':
		return m.integer(2)
	case 'J':
		n, err := m.uint(4)
		if err != nil {
			return err
		}
		return m.push(int64(int32(n)))
	case 0x8a, 0x8b: // LONG1, LONG4
		return m.long(op)
	case 'G':
		n, err := m.bits()
		if err != nil {
			return err
		}
		return m.push(math.Float64frombits(n))
	case 0x8c:
		return m.string(1)
	case 'X':
		return m.string(4)
	case 0x8d:
		return m.string(8)
	case 'C':
		return m.bytes(1)
	case 'B':
		return m.bytes(4)
	case 0x8e, 0x96:
		return m.bytes(8)
	}
	return m.container(op)
}

// container runs an opcode of containers, of the stack or of the memo.
func (m *machine) container(op byte) error {
	switch op {
	case '(':
		m.marks = append(m.marks, len(m.stack))
		return nil
	case '0':
		_, err := m.pop()
		return err
	case '1':
		_, err := m.sinceMark()
		return err
	case '2':
		v, err := m.top()
		if err != nil {
			return err
		}
		return m.push(v)
	case ']':
		return m.push(&List{})
	case '}':
		return m.push(&Dict{})
	case ')':
		return m.push(Tuple{})
	case 'l', 't', 'd':
		items, err := m.sinceMark()
		if err != nil {
			return err
		}
		items = slices.Clone(items)
		switch op {
		case 'l':
			return m.push(&List{items})
		case 't':
			return m.push(Tuple(items))
		}
		if err := m.push(&Dict{}); err != nil {
			return err
		}
		return m.set(items, nil)
	case 0x85, 0x86, 0x87:
		items, err := m.last(int(op - 0x84))
		if err != nil {
			return err
		}
		return m.push(Tuple(slices.Clone(items)))
	case 'a':
		return m.append(m.last(1))
	case 'e':
		return m.append(m.sinceMark())
	case 's':
		return m.set(m.last(2))
	case 'u':
		return m.set(m.sinceMark())
	case 0x94: // MEMOIZE
		return m.remember(0)
	case 'q': // BINPUT, LONG_BINPUT
		return m.remember(1)
	case 'r':
		return m.remember(4)
	case 'h': // BINGET, LONG_BINGET
		return m.recall(1)
	case 'j':
		return m.recall(4)
	}
	return m.forbidden(op)
}

// forbidden names what an opcode asks for that is not data.
func (m *machine) forbidden(op byte) error {
	const only = "; memplan reads plain data alone, and runs nothing"
	switch op {
	case 'c', 'i': // GLOBAL, INST: two lines
		module, err := m.line()
		if err != nil {
			return err
		}
		name, err := m.line()
		if err != nil {
			return err
		}
		return refuse("it asks for %q"+only, module+"."+name)
	case 0x93: // STACK_GLOBAL
		names, err := m.last(2)
		if err != nil {
			return err
		}
		module, _ := names[0].(string)
		name, _ := names[1].(string)
		return refuse("it asks for %q"+only, module+"."+name)
	case 'R', 'b', 'o', 0x81, 0x92:
		return refuse("it makes an object of a class" + only)
	case 0x82, 0x83, 0x84:
		return refuse("it asks for an object of the registry of extensions" + only)
	case 'P', 'Q':
		return refuse("it asks for a persistent object" + only)
	case 0x97, 0x98:
		return refuse("it asks for a buffer that is not in the file")
	case 0x8f, 0x90, 0x91:
		return refuse("it holds a set; allowed are lists, tuples and dicts")
	case 'I', 'L', 'F', 'S', 'V', 'T', 'U', 'g', 'p':
		return refuse("it is written in protocol 0 or 1; allowed are 2 to 5")
	}
	return refuse("0x%02x is no opcode: this is no pickle, or a damaged one", op)
}

// The stack.

func (m *machine) push(v Value) error {
	m.stack = append(m.stack, v)
	return nil
}

// floor is the part of the stack that lies below the last mark.
func (m *machine) floor() int {
	if len(m.marks) == 0 {
		return 0
	}
	return m.marks[len(m.marks)-1]
}

var errEmpty = refuse("it takes more from its stack than there is")

// last removes the last n values. What it returns is good until the next push.
func (m *machine) last(n int) ([]Value, error) {
	i := len(m.stack) - n
	if i < m.floor() {
		return nil, errEmpty
	}
	items := m.stack[i:]
	m.stack = m.stack[:i]
	return items, nil
}

func (m *machine) pop() (Value, error) {
	v, err := m.top()
	if err == nil {
		m.stack = m.stack[:len(m.stack)-1]
	}
	return v, err
}

func (m *machine) top() (Value, error) {
	if len(m.stack) == m.floor() {
		return nil, errEmpty
	}
	return m.stack[len(m.stack)-1], nil
}

// sinceMark removes the last mark and the values above it, as last does.
func (m *machine) sinceMark() ([]Value, error) {
	if len(m.marks) == 0 {
		return nil, refuse("it ends a list or dict that it did not begin")
	}
	items, err := m.last(len(m.stack) - m.floor())
	m.marks = m.marks[:len(m.marks)-1]
	return items, err
}

// append extends the list on the stack.
func (m *machine) append(items []Value, err error) error {
	if err != nil {
		return err
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	l, ok := v.(*List)
	if !ok {
		return refuse("it appends to something that is no list")
	}
	l.Items = append(l.Items, items...)
	return nil
}

// set sets the dict on the stack: items are keys and values in turn.
func (m *machine) set(items []Value, err error) error {
	if err != nil {
		return err
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	d, ok := v.(*Dict)
	if !ok || len(items)%2 != 0 {
		return refuse("it sets keys of something that is no dict, or a key without a value")
	}
	for i := 0; i < len(items); i += 2 {
		d.Keys = append(d.Keys, items[i])
		d.Values = append(d.Values, items[i+1])
	}
	return nil
}

// remember notes the value on the stack under a number of size bytes, or under the next one.
// Python numbers them as they come.
func (m *machine) remember(size int) error {
	n := uint64(len(m.memo))
	if size > 0 {
		var err error
		if n, err = m.uint(size); err != nil {
			return err
		}
	}
	v, err := m.top()
	switch {
	case err != nil:
		return err
	case n < uint64(len(m.memo)):
		m.memo[n] = v
	case n == uint64(len(m.memo)):
		m.memo = append(m.memo, v)
	default:
		return refuse("it remembers object %d when there are %d", n, len(m.memo))
	}
	return nil
}

// recall pushes what was noted under a number of size bytes.
func (m *machine) recall(size int) error {
	n, err := m.uint(size)
	if err != nil {
		return err
	}
	if n >= uint64(len(m.memo)) {
		return refuse("it takes object %d of those that it remembers, which are %d", n, len(m.memo))
	}
	return m.push(m.memo[n])
}

// What the input holds.

func (m *machine) byte() (byte, error) {
	b, err := m.r.ReadByte()
	if err == nil {
		m.pos++
	}
	return b, err
}

// uint reads an unsigned number of n bytes, little-endian.
func (m *machine) uint(n int) (uint64, error) {
	var b [8]byte
	k, err := io.ReadFull(m.r, b[:n])
	m.pos += int64(k)
	return binary.LittleEndian.Uint64(b[:]), err
}

// bits reads the bits of a float, big-endian.
func (m *machine) bits() (uint64, error) {
	var b [8]byte
	k, err := io.ReadFull(m.r, b[:])
	m.pos += int64(k)
	return binary.BigEndian.Uint64(b[:]), err
}

func (m *machine) integer(n int) error {
	v, err := m.uint(n)
	if err != nil {
		return err
	}
	return m.push(int64(v))
}

// long reads an integer of a stated number of bytes, in two's complement.
func (m *machine) long(op byte) error {
	size := 1
	if op == 0x8b {
		size = 4
	}
	n, err := m.uint(size)
	if err != nil {
		return err
	}
	if n > 8 {
		return m.wide(n)
	}
	v, err := m.uint(int(n))
	if err != nil {
		return err
	}
	if n == 0 {
		return m.push(int64(0))
	}
	unused := 64 - 8*n // bits above the sign
	return m.push(int64(v<<unused) >> unused)
}

// wide reads an integer of more than 8 bytes; those above the eighth may only repeat the sign.
func (m *machine) wide(n uint64) error {
	low, err := m.uint(8)
	if err != nil {
		return err
	}
	sign := byte(0)
	if int64(low) < 0 {
		sign = 0xff
	}
	for range n - 8 {
		b, err := m.byte()
		if err != nil {
			return err
		}
		if b != sign {
			return refuse("it holds an integer that does not fit into 64 bits")
		}
	}
	return m.push(int64(low))
}

// read reads n bytes; what it returns is good until the next call. It grows with what is there,
// not with n.
func (m *machine) read(n uint64) ([]byte, error) {
	m.text = m.text[:0]
	for n > 0 {
		part := min(n, 1<<16)
		i := len(m.text)
		m.text = append(m.text, make([]byte, part)...)
		k, err := io.ReadFull(m.r, m.text[i:])
		m.pos += int64(k)
		if err != nil {
			return nil, err
		}
		n -= part
	}
	return m.text, nil
}

// string reads a string after its length of size bytes.
func (m *machine) string(size int) error {
	n, err := m.uint(size)
	if err != nil {
		return err
	}
	b, err := m.read(n)
	if err != nil {
		return err
	}
	return m.push(strings.ToValidUTF8(string(b), "\uFFFD")) // names of files may hold lone surrogates
}

// bytes reads bytes after their length of size bytes.
func (m *machine) bytes(size int) error {
	n, err := m.uint(size)
	if err != nil {
		return err
	}
	b, err := m.read(n)
	if err != nil {
		return err
	}
	return m.push(Bytes(b))
}

// line reads up to the end of a line, which a name of a class ends in.
func (m *machine) line() (string, error) {
	const most = 1 << 10
	var b []byte
	for len(b) < most {
		c, err := m.byte()
		if err != nil {
			return "", err
		}
		if c == '\n' {
			break
		}
		b = append(b, c)
	}
	return string(b), nil
}
