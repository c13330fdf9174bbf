package tfevents

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"
	"time"
)

// decoded is an event as the test reads it.
type decoded struct {
	time    float64
	step    uint64
	version string
	scalars map[string]float32
}

// fields calls f with each field of a message; number is the value of one that is none of bytes.
func fields(t *testing.T, b []byte, f func(field uint64, number uint64, data []byte)) {
	t.Helper()
	for len(b) > 0 {
		k, n := binary.Uvarint(b)
		b = b[n:]
		switch k & 7 {
		case 0:
			v, n := binary.Uvarint(b)
			b = b[n:]
			f(k>>3, v, nil)
		case 1:
			f(k>>3, binary.LittleEndian.Uint64(b), nil)
			b = b[8:]
		case 2:
			size, n := binary.Uvarint(b)
			f(k>>3, 0, b[n:n+int(size)])
			b = b[n+int(size):]
		case 5:
			f(k>>3, uint64(binary.LittleEndian.Uint32(b)), nil)
			b = b[4:]
		default:
			t.Fatalf("wire type %d", k&7)
		}
	}
}

// records reads a file, whose checksums hold.
func records(t *testing.T, b []byte) (out []decoded) {
	t.Helper()
	sum := func(b []byte) uint32 {
		c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return (c>>15 | c<<17) + 0xa282ead8
	}
	for len(b) > 0 {
		n := binary.LittleEndian.Uint64(b)
		data := b[12 : 12+n]
		if binary.LittleEndian.Uint32(b[8:]) != sum(b[:8]) || binary.LittleEndian.Uint32(b[12+n:]) != sum(data) {
			t.Fatal("a checksum is wrong")
		}
		e := decoded{scalars: map[string]float32{}}
		fields(t, data, func(field, number uint64, data []byte) {
			switch field {
			case 1:
				e.time = math.Float64frombits(number)
			case 2:
				e.step = number
			case 3:
				e.version = string(data)
			case 5:
				fields(t, data, func(_, _ uint64, value []byte) {
					tag, v := "", float32(0)
					fields(t, value, func(field, number uint64, data []byte) {
						if field == 1 {
							tag = string(data)
						} else {
							v = math.Float32frombits(uint32(number))
						}
					})
					e.scalars[tag] = v
				})
			}
		})
		out, b = append(out, e), b[16+n:]
	}
	return out
}

func TestWriter(t *testing.T) {
	var b bytes.Buffer
	at := time.Unix(1700000000, 250_000_000)
	w, err := NewWriter(&b, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(at, 300, Scalar{"loss/train", 0.5}, Scalar{"accuracy", math.NaN()}); err != nil {
		t.Fatal(err)
	}
	got := records(t, b.Bytes())
	if len(got) != 2 || got[0].version != "brain.Event:2" || got[0].time != 1700000000.25 {
		t.Fatalf("%+v", got)
	}
	e := got[1]
	if e.step != 300 || e.time != 1700000000.25 || e.scalars["loss/train"] != 0.5 || !math.IsNaN(float64(e.scalars["accuracy"])) {
		t.Errorf("%+v", e)
	}
}

// TestBegin holds the beginning of a file, with the checksum of a length, against that of
// all files that TensorFlow writes: an event of 24 bytes.
func TestBegin(t *testing.T) {
	var b bytes.Buffer
	if _, err := NewWriter(&b, time.Unix(1700000000, 0)); err != nil {
		t.Fatal(err)
	}
	if got := b.Bytes()[:12]; !bytes.Equal(got, []byte("\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7fK\"")) {
		t.Errorf("%q", got)
	}
}
