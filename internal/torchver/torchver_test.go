package torchver

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Version
		err  string // a part of the message; "" if in is good
	}{
		{"2.6", Version{2, 6}, ""},
		{"2.6.0", Version{2, 6}, ""},
		{"2.11.1", Version{2, 11}, ""},
		{"v2.9", Version{2, 9}, ""},
		{" 2.15 ", Version{2, 15}, ""},
		{"2.6.0+cu124", Version{2, 6}, ""},
		{"2.5", Version{}, "PyTorch 2.5 is not modelled; allowed are 2.6 to 2.15"},
		{"1.13", Version{}, "PyTorch 1.13 is not modelled"},
		{"2.16", Version{}, "not modelled"},
		{"3.0", Version{}, "not modelled"},
		{"", Version{}, `"" is not a PyTorch version`},
		{"2", Version{}, `"2" is not a PyTorch version`},
		{"2.", Version{}, "is not a PyTorch version"},
		{"2.6.0.1", Version{}, "is not a PyTorch version"},
		{"2.-6", Version{}, "is not a PyTorch version"},
		{"2.+6", Version{}, "is not a PyTorch version"},
		{"2.0006", Version{}, "is not a PyTorch version"},
		{"latest", Version{}, "is not a PyTorch version"},
	} {
		got, err := Parse(c.in)
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("Parse(%q) = %v, %v; want %v", c.in, got, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("Parse(%q) = %v, %v; want an error with %q", c.in, got, err, c.err)
		}
	}
}

func TestStringParsesBack(t *testing.T) {
	for v := Oldest; Newest.AtLeast(v); v.Minor++ {
		if got, err := Parse(v.String()); err != nil || got != v {
			t.Errorf("Parse(%q) = %v, %v", v.String(), got, err)
		}
	}
}

func TestAtLeast(t *testing.T) {
	for _, c := range []struct {
		v, w Version
		want bool
	}{
		{Version{2, 6}, Version{2, 6}, true},
		{Version{2, 10}, Version{2, 9}, true},
		{Version{2, 9}, Version{2, 10}, false},
		{Version{3, 0}, Version{2, 15}, true},
		{Version{1, 13}, Version{2, 6}, false},
	} {
		if got := c.v.AtLeast(c.w); got != c.want {
			t.Errorf("%v.AtLeast(%v) = %v", c.v, c.w, got)
		}
	}
}

// TestCublas lists, for each era, the workspace rule of every architecture.
func TestCublas(t *testing.T) {
	for _, c := range []struct {
		v         Version
		big       []int // compute capabilities with 32 MiB
		transient bool
		ltShares  bool
	}{
		{Version{2, 6}, []int{9}, false, false},
		{Version{2, 10}, []int{9}, false, false},
		{Version{2, 11}, []int{9}, false, true},
		{Version{2, 12}, []int{9, 10, 12}, false, true},
		{Version{2, 14}, []int{9, 10, 12}, false, true},
		{Version{2, 15}, []int{9, 10, 11, 12}, true, false},
	} {
		var big []int
		for sm := 5; sm <= 13; sm++ {
			if c.v.CublasWorkspace32MiB(sm) {
				big = append(big, sm)
			}
		}
		if len(big) != len(c.big) {
			t.Errorf("%v: 32 MiB on %v, want %v", c.v, big, c.big)
			continue
		}
		for i := range big {
			if big[i] != c.big[i] {
				t.Errorf("%v: 32 MiB on %v, want %v", c.v, big, c.big)
			}
		}
		if got := c.v.CublasWorkspaceTransient(); got != c.transient {
			t.Errorf("%v: transient %v", c.v, got)
		}
		if got := c.v.CublasLtSharesWorkspace(); got != c.ltShares {
			t.Errorf("%v: lt shares %v", c.v, got)
		}
	}
}

func TestAllocatorOptionSince(t *testing.T) {
	for _, o := range allocatorOptions {
		since, source := AllocatorOptionSince(o.name)
		if since != o.Since || source == "" || !Newest.AtLeast(since) || Oldest.AtLeast(since) {
			t.Errorf("%s: since %v (%q)", o.name, since, source)
		}
	}
	if since, source := AllocatorOptionSince("max_split_size_mb"); since != Oldest || source != "" {
		t.Errorf("max_split_size_mb: since %v (%q)", since, source)
	}
}

// FuzzParse checks that what is accepted is a known release, and prints as one
// that is read again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"2.6", "2.6.0", "v2.11.1", "2.6.0+cu124", "2.06", "2", "2.6.0.1", "-1.2", "2.6.", "99999999999.1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := Parse(s)
		if err != nil {
			if err.Error() == "" {
				t.Errorf("Parse(%q): an error without text", s)
			}
			return
		}
		again, err := Parse(v.String())
		if err != nil || again != v || !v.AtLeast(Oldest) || !Newest.AtLeast(v) {
			t.Errorf("Parse(%q) = %v, which gives %v, %v", s, v, again, err)
		}
	})
}
