package spec

import (
	"reflect"
	"testing"

	"github.com/memplan/memplan/specs"
)

// What is kept of the texts that come with memplan is not changed by who reads them, though
// they share the most of it.
func TestOwnIsKept(t *testing.T) {
	names := append(specs.Names(), "hf/common")
	for _, name := range specs.HFTypes() {
		names = append(names, "hf/"+name)
	}
	kept := 0
	for _, name := range names {
		text, err := specs.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		first, err := Parse(name, text, Options{Own: true})
		if err != nil {
			continue // it needs params
		}
		second, err := Parse(name, text, Options{Own: true})
		if err != nil {
			t.Fatal(err)
		}
		if first.Model != nil && second.Model != nil && first.root.Get("model").Get("blocks") != nil {
			first.Share(second)
			first.root.Get("model").Get("blocks").put(word("added"), mapping())
		}
		if now := known.get(text); now != nil {
			kept++
			if !reflect.DeepEqual(now, (&reader{errs: &Errors{}}).read(text)) {
				t.Errorf("%s: what is kept of it was changed", name)
			}
		}
	}
	if kept < 50 {
		t.Errorf("only %d texts were kept", kept)
	}
}
