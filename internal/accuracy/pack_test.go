package accuracy

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/trace"
)

// TestPacked: recordings are in the form in which files are kept.
func TestPacked(t *testing.T) {
	files, err := Files(needs.File(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		packed, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(f, err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(f, err)
		}
		if _, events, _ := bytes.Cut(text, []byte(`"events":{`)); bytes.Contains(events, []byte(`":[[1,`)) {
			t.Errorf("%s has ids: run go run ./tools/accuracy -pack", f)
		}
	}
}

// TestPack: a recording that changes leaves the bytes of others as they are, and
// nothing but the form of events is changed.
func TestPack(t *testing.T) {
	cases := func(bytes string) []*FuzzCase {
		var out []*FuzzCase
		for _, name := range []string{"a", "b", "c"} {
			c := &FuzzCase{Name: name, Spec: "memplan: 1"}
			n := "64"
			if name == "b" {
				n = bytes
			}
			if err := json.Unmarshal([]byte(`{"setup":[[1,`+n+`]],"step1":[-1]}`), &c.Events); err != nil {
				t.Fatal(err)
			}
			out = append(out, c)
		}
		return out
	}
	written := func(list []*FuzzCase) []byte {
		path := filepath.Join(t.TempDir(), "f.json.gz")
		if err := WriteFuzz(path, list); err != nil {
			t.Fatal(err)
		}
		if back, err := ReadFuzz(path); err != nil || len(back) != len(list) {
			t.Fatal(len(back), err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a, b := written(cases("64")), written(cases("4096"))
	third := a[bytes.LastIndex(a[:len(a)-60], []byte{0x1f, 0x8b}):]
	if !bytes.HasSuffix(b, third) || bytes.Equal(a, b) {
		t.Error("a case that changed changes others")
	}
	written(nil)

	path := filepath.Join(t.TempDir(), "r.json.gz")
	const recorded = `{"config": {"b": 1, "a": 2}, "events": {"setup": [[1, 8]]}, "steps": []}`
	if err := write(path, [][]byte{[]byte(recorded)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if changed, err := Pack(path); err != nil || changed != want {
			t.Errorf("changed %v, want %v (%v)", changed, want, err)
		}
	}
	var text json.RawMessage
	if err := readJSON(path, &text); err != nil || string(text) != `{"config": {"b": 1, "a": 2}, "events": {"setup":[8]}, "steps": []}` {
		t.Errorf("%s, %v", text, err)
	}
	r, err := LoadFile(path)
	if err != nil || len(r.Events["setup"]) != 1 || r.Events["setup"][0] != (trace.RecordedEvent{ID: 1, Bytes: 8}) {
		t.Errorf("%+v, %v", r, err)
	}
}
