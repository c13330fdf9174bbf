package torchver

import "testing"

// TestPrefersCudnnAttention lists which wheels ask cuDNN for attention first, on which
// architectures.
func TestPrefersCudnnAttention(t *testing.T) {
	for _, c := range []struct {
		torch string
		want  []int
	}{
		{"2.6", nil}, {"2.8.0+cu128", nil},
		{"2.9", []int{90, 100}}, {"2.9.1+cu126", []int{90, 100}}, {"2.9.0+cu130", []int{90, 100}},
		{"2.10", nil}, {"2.10.0+cu128", nil}, {"2.10.0+cu130", []int{90, 100}},
		{"2.11", []int{90, 100, 103}}, {"2.11.0+cu126", nil}, {"2.11.0+cu128", []int{90, 100, 103}},
		{"2.12", []int{90, 100, 103}}, {"2.14", []int{90, 100, 103}}, {"2.15", []int{90, 100, 103}},
	} {
		v, err := Parse(c.torch)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, arch := range []int{70, 75, 80, 86, 89, 90, 100, 103, 120, 121} {
			if v.PrefersCudnnAttention(arch, v.Cudnn(c.torch)) {
				got = append(got, arch)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s with cuDNN %s: on %v, want %v", c.torch, CudnnName(v.Cudnn(c.torch)), got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: on %v, want %v", c.torch, got, c.want)
			}
		}
	}
}

func TestCudnnAttentionHeads(t *testing.T) {
	for _, c := range []struct {
		v           Version
		arch, cudnn int
		train       bool
		qk, val     int64
		want        bool
	}{
		{Version{2, 6}, 90, 90100, true, 128, 128, true},
		{Version{2, 6}, 90, 91002, true, 136, 136, false},
		{Version{2, 9}, 90, 91002, true, 256, 256, true},
		{Version{2, 9}, 100, 91002, true, 256, 256, false},
		{Version{2, 9}, 80, 91002, true, 136, 64, false},
		{Version{2, 12}, 100, 92000, true, 192, 128, true},
		{Version{2, 12}, 90, 92000, true, 160, 160, true},
		{Version{2, 12}, 90, 92000, true, 124, 124, false}, // no multiple of 8
		{Version{2, 14}, 90, 92400, true, 160, 160, false}, // no derivative
		{Version{2, 14}, 90, 92400, false, 160, 160, true},
		{Version{2, 14}, 90, 92400, true, 256, 256, true},
		{Version{2, 14}, 90, 92000, true, 256, 256, false},
		{Version{2, 14}, 90, 92000, true, 192, 128, true},
		{Version{2, 14}, 120, 92400, true, 256, 256, false},
	} {
		if got := c.v.CudnnAttentionHeads(c.arch, c.cudnn, c.train, c.qk, c.val); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestCudnnAttentionDropout(t *testing.T) {
	for _, c := range []struct {
		v     Version
		cudnn int
		p     float64
		want  bool
	}{
		{Version{2, 9}, 91002, 0.1, true}, {Version{2, 9}, 91300, 0.1, false}, {Version{2, 9}, 91300, 0, true},
		{Version{2, 11}, 91900, 0.1, true}, {Version{2, 12}, 92000, 0.1, false}, {Version{2, 12}, 92000, 0.125, true},
	} {
		if got := c.v.CudnnAttentionDropout(c.cudnn, c.p); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestCudnns(t *testing.T) {
	for _, w := range cudnns {
		if w.source == "" || w.torch.Cudnn(w.torch.String()+".0+"+w.cuda) != w.cudnn {
			t.Errorf("%v with %s: %d", w.torch, w.cuda, w.cudnn)
		}
	}
	for v := Oldest; Newest.AtLeast(v); v.Minor++ {
		if v.Cudnn(v.String()) == 0 {
			t.Errorf("%v: no cuDNN", v)
		}
	}
}

func TestParseCudnn(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int
	}{{"9.10.2", 91002}, {"9.10.2.21", 91002}, {"9.20", 92000}, {"8.9.7", 0}, {"9", 0}, {"9.100.1", 0}, {"9.01.1", 0}, {"9.1.x", 0}, {"", 0}} {
		got, err := ParseCudnn(c.in)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("%q: %d, %v", c.in, got, err)
		}
		if err == nil && CudnnName(got) != c.in && c.in == "9.10.2" {
			t.Errorf("%q: %s", c.in, CudnnName(got))
		}
	}
}
