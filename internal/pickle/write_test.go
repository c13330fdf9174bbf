package pickle

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// TestWrite holds that what is written is read as it was.
func TestWrite(t *testing.T) {
	shared := &List{Items: []Value{int64(1)}}
	long := &List{}
	for i := range 2500 {
		long.Items = append(long.Items, int64(i))
	}
	big := &Dict{}
	for i := range 2500 {
		big.Keys, big.Values = append(big.Keys, int64(i)), append(big.Values, strings.Repeat("x", i%300))
	}
	v := &List{Items: []Value{
		nil, true, false, int64(0), int64(255), int64(256), int64(65535), int64(65536), int64(-1), int64(math.MaxInt32), int64(math.MinInt32),
		int64(math.MaxInt32 + 1), int64(math.MaxInt64), int64(math.MinInt64), 0.1, math.Inf(-1), "", "ä", strings.Repeat("y", 1000),
		Tuple{int64(1), int64(2)}, Tuple{}, shared, shared, long, big, &Dict{},
	}}
	for i := range 300 { // the memo has more than 256 entries
		v.Items = append(v.Items, &List{Items: []Value{int64(i)}})
	}
	v.Items = append(v.Items, shared, v.Items[len(v.Items)-1])
	var b bytes.Buffer
	if err := Write(&b, v); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if text(got, 0) != text(v, 0) {
		t.Error("what was read is not what was written")
	}
	l := got.(*List)
	if l.Items[21] != l.Items[22] || l.Items[21] != l.Items[len(l.Items)-2] || l.Items[len(l.Items)-1] != l.Items[len(l.Items)-3] {
		t.Error("a shared list was written more than once")
	}
	if err := Write(&b, &List{Items: []Value{1}}); err == nil {
		t.Error("an int was written, which is no Value")
	}
}
