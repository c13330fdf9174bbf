// Package tfevents writes the event files that TensorBoard shows: scalars by a tag and a
// step. A file is a list of records (TFRecord: length, checksum, bytes, checksum), each of
// which is an Event of tensorflow/core/util/event.proto in the encoding of protocol
// buffers. What is written of it is four fields; no library in Go that writes them is kept.
package tfevents

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"
)

// Name is that of an event file, by which TensorBoard finds it.
func Name(began time.Time, by string) string {
	return fmt.Sprintf("events.out.tfevents.%010d.%s", began.Unix(), by)
}

// The fields of the messages, by their numbers.
const (
	eventTime    = 1 // double, seconds since 1970
	eventStep    = 2 // int64
	eventVersion = 3 // string, of the first event
	eventSummary = 5 // Summary

	summaryValue = 1 // Value, repeated

	valueTag    = 1 // string
	valueSimple = 2 // float
)

// The wire types of protocol buffers.
const (
	varint  = 0
	fixed64 = 1
	lengthy = 2
	fixed32 = 5
)

// version is what the first event of a file says.
const version = "brain.Event:2"

// Scalar is a number under a name, such as loss/train.
type Scalar struct {
	Tag   string
	Value float64
}

// Writer writes events.
type Writer struct{ to io.Writer }

// NewWriter begins a file.
func NewWriter(to io.Writer, now time.Time) (*Writer, error) {
	w := &Writer{to}
	return w, w.record(text(event(now, 0), eventVersion, version))
}

// Write writes numbers of a step.
func (w *Writer) Write(now time.Time, step int64, scalars ...Scalar) error {
	var summary []byte
	for _, s := range scalars {
		v := text(nil, valueTag, s.Tag)
		v = binary.LittleEndian.AppendUint32(key(v, valueSimple, fixed32), math.Float32bits(float32(s.Value)))
		summary = text(summary, summaryValue, string(v))
	}
	return w.record(text(event(now, step), eventSummary, string(summary)))
}

// event is the beginning of an event.
func event(now time.Time, step int64) []byte {
	b := binary.LittleEndian.AppendUint64(key(nil, eventTime, fixed64), math.Float64bits(float64(now.UnixMicro())/1e6))
	if step == 0 { // which messages leave out
		return b
	}
	return binary.AppendUvarint(key(b, eventStep, varint), uint64(step))
}

func key(b []byte, field, wire uint64) []byte { return binary.AppendUvarint(b, field<<3|wire) }

// text appends a field of bytes.
func text(b []byte, field uint64, s string) []byte {
	return append(binary.AppendUvarint(key(b, field, lengthy), uint64(len(s))), s...)
}

// record writes one record.
func (w *Writer) record(data []byte) error {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, masked(b))
	b = append(b, data...)
	_, err := w.to.Write(binary.LittleEndian.AppendUint32(b, masked(data)))
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is a checksum as records have it: turned and shifted, so that one of bytes that
// hold a checksum is none of them (tensorflow/core/lib/hash/crc32c.h).
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}
