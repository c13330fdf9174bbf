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

// A file of blocks that is found again has no mistakes of the job before, and blocks of its
// own.
func TestBlocksAgain(t *testing.T) {
	text, err := specs.Preset("hf/common")
	if err != nil {
		t.Fatal(err)
	}
	var was [2]*Spec
	for i := range was {
		if was[i], err = Parse("preset:hf/common", text, Options{Own: true}); err != nil {
			t.Fatal(err)
		}
		if known.file(text, "preset:hf/common") == nil {
			t.Fatal("the file is not kept")
		}
		if n := len(was[i].Errs.List); n > 0 {
			t.Errorf("%d mistakes of another job", n)
		}
		was[i].Errs.Addf(Span{}, "a mistake")
		for _, b := range was[i].Model.Blocks {
			if b.V.Of != nil {
				t.Fatalf("block %s is of another job", b.Name.V)
			}
			b.V.Of = was[i]
		}
	}
	first, second := was[0].Model.Blocks, was[1].Model.Blocks
	if len(first) != len(second) || first[0].V == second[0].V {
		t.Fatalf("%d blocks, then %d", len(first), len(second))
	}
	for i := range first {
		a, b := *first[i].V, *second[i].V
		if a.Of, b.Of = nil, nil; !reflect.DeepEqual(a, b) {
			t.Errorf("block %s is another one", first[i].Name.V)
		}
	}
}
