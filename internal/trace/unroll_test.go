package trace

import (
	"fmt"
	"testing"
)

// TestUnrolled plays loops that lie in one another, whose turns rename blocks.
func TestUnrolled(t *testing.T) {
	a := func(id, step int32) Event { return Event{Kind: Alloc, ID: id, Step: step, Bytes: 8} }
	f := func(id, step int32) Event { return Event{Kind: Free, ID: id, Step: step} }
	tr := &Trace{
		Events:     []Event{a(1, 0), a(2, 1), f(1, 1), a(3, 2), f(2, 2), a(4, 9), f(3, 9)},
		Categories: []Category{0, Inputs, Gradients, Activations, Workspace},
	}
	// Step 2 comes again twice: there block 2 is what block 3 was. Then step 2 and those come again once.
	loops := []Loop{{Begin: 3, End: 5, Turns: 2, Steps: 1, Names: []Rename{{3, 2}}}, {Begin: 3, End: 5, Turns: 1, Steps: 3, Names: []Rename{{3, 2}}}}
	say := func(u *Trace) string {
		s := ""
		for _, e := range u.Events {
			s += fmt.Sprintf("%d:%s%d ", e.Step, map[Kind]string{Alloc: "+", Free: "-"}[e.Kind], e.ID)
		}
		return s + fmt.Sprint(u.Categories)
	}
	const upToFour = "0:+1 1:+2 1:-1 2:+3 2:-2 3:+4 3:-3 4:+5 4:-4 "
	for _, c := range []struct {
		step int64
		most int
		want string
	}{
		{4, 100, upToFour + "[parameters inputs gradients activations activations activations]"},
		{9, 100, upToFour + "5:+6 5:-5 6:+7 6:-6 7:+8 7:-7 9:+9 9:-8 [parameters inputs gradients activations activations activations activations activations activations workspace]"},
		{1, 100, "0:+1 1:+2 1:-1 [parameters inputs gradients]"},
		{9, 5, ""},
	} {
		got := ""
		if u := tr.Unrolled(loops, c.step, c.most); u != nil {
			got = say(u)
		}
		if got != c.want {
			t.Errorf("up to step %d: %s\nwant %s", c.step, got, c.want)
		}
	}
}
