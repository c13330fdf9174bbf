package snapshot

import (
	"bytes"
	"reflect"
	"testing"
)

// TestWrite holds that a snapshot that is written is read as it was.
func TestWrite(t *testing.T) {
	for name, s := range readAll(t) {
		var b bytes.Buffer
		if err := s.Write(&b); err != nil {
			t.Fatal(err)
		}
		got, err := Read(&b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, s) {
			t.Errorf("%s: what was read is not what was written", name)
		}
	}
}
