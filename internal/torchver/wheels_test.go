package torchver

import "testing"

func TestWheelsRunOn(t *testing.T) {
	for _, c := range []struct {
		v    Version
		arch int
		want bool
	}{
		{Version{2, 6}, 60, true}, {Version{2, 6}, 89, true}, {Version{2, 6}, 90, true},
		{Version{2, 6}, 100, false}, {Version{2, 6}, 120, false}, {Version{2, 7}, 120, true}, {Newest, 75, true},
	} {
		if got := c.v.WheelsRunOn(c.arch); got != c.want {
			t.Errorf("PyTorch %v on sm_%d: %v", c.v, c.arch, got)
		}
	}
}
