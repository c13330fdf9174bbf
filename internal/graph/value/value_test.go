package value

import "testing"

// TestAppended: lists that begin alike share what they are stored in, and change
// nothing of one another.
func TestAppended(t *testing.T) {
	item := func(n int) Meta { return Meta{Tuple: make([]Meta, n)} }
	list := Meta{Tuple: []Meta{}, List: true}
	for n := range 5 {
		list = list.Appended(item(n))
	}
	one, two := list.Appended(item(5)), list.Appended(item(6))
	if one.Copies() || !list.Copies() {
		t.Error("the first to go on does not take the list's place")
	}
	for i, m := range one.Tuple {
		if len(m.Tuple) != i {
			t.Errorf("item %d is %s", i, m.Describe())
		}
	}
	if len(list.Tuple) != 5 || len(two.Tuple) != 6 || len(two.Tuple[5].Tuple) != 6 {
		t.Error("a list changes with another")
	}
}
