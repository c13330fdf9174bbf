package tensor

import (
	"errors"
	"fmt"
	"testing"
)

// text prints sizes, strides and offset: "[2, 3] [3, 1] 0".
func text(l Layout) string { return fmt.Sprintf("%v %v %d", l.Size, l.Stride, l.Offset) }

func TestDims(t *testing.T) {
	d := D(2, 3, 4)
	for _, c := range []struct {
		name string
		got  any
		want any
	}{
		{"At", d.At(-1), int64(4)},
		{"Set", d.Set(-3, 7).String(), "[7, 3, 4]"},
		{"Insert", d.Insert(1, 9).String(), "[2, 9, 3, 4]"},
		{"Append", d.Append(5).String(), "[2, 3, 4, 5]"},
		{"Remove", d.Remove(0).String(), "[3, 4]"},
		{"Numel", d.Numel(), int64(24)},
		{"Numel of none", D().Numel(), int64(1)},
		{"String of none", D().String(), "[]"},
		{"equality after Remove", d.Append(1).Remove(3) == d, true},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestRankError(t *testing.T) {
	full := D(1, 1, 1, 1, 1, 1, 1, 1)
	for name, f := range map[string]func(){
		"D":         func() { D(make([]int64, MaxRank+1)...) },
		"Insert":    func() { full.Insert(0, 1) },
		"Append":    func() { full.Append(1) },
		"Unsqueeze": func() { l := Contiguous(full); l.Unsqueeze(0) },
	} {
		func() {
			defer func() {
				if e, ok := recover().(RankError); !ok || e != MaxRank+1 {
					t.Errorf("%s beyond %d dimensions: %v, want a RankError", name, MaxRank, e)
				}
			}()
			f()
		}()
	}
}

func TestCheckNumel(t *testing.T) {
	for _, c := range []struct {
		d        Dims
		want     int64
		overflow bool
	}{
		{D(), 1, false},
		{D(3, 4), 12, false},
		{D(1<<40, 1<<40, 0), 0, false},
		{D(1<<25, 1<<25), 1 << 50, false},
		{D(1<<32, 1<<32), 0, true},
		{D(1<<51, 1), 0, true},
	} {
		got, err := c.d.CheckNumel()
		if got != c.want || errors.Is(err, ErrOverflow) != c.overflow {
			t.Errorf("%v: %d, %v; want %d, overflow %v", c.d, got, err, c.want, c.overflow)
		}
	}
	if _, err := D(2, -1).CheckNumel(); err == nil {
		t.Error("a negative size is accepted")
	}
}

func TestLayouts(t *testing.T) {
	nchw := Contiguous(D(2, 3, 4, 5))
	nhwc := ChannelsLast(D(2, 3, 4, 5))
	for _, c := range []struct {
		name                    string
		l                       Layout
		text                    string
		contiguous, last, dense bool
		storage                 int64
	}{
		{"contiguous", nchw, "[2, 3, 4, 5] [60, 20, 5, 1] 0", true, false, true, 120},
		{"channels last", nhwc, "[2, 3, 4, 5] [60, 1, 15, 3] 0", false, true, true, 120},
		{"channels last 3d", ChannelsLast(D(2, 3, 1, 4, 5)), "[2, 3, 1, 4, 5] [60, 1, 60, 15, 3] 0", false, true, true, 120},
		{"scalar", Contiguous(D()), "[] [] 0", true, false, true, 1},
		{"empty", Contiguous(D(2, 0, 3)), "[2, 0, 3] [3, 3, 1] 0", true, false, true, 0},
		{"transposed", nchw.Transpose(2, 3), "[2, 3, 5, 4] [60, 20, 1, 5] 0", false, false, true, 120},
		{"permuted", nchw.Permute([]int{0, 2, 3, 1}), "[2, 4, 5, 3] [60, 5, 1, 20] 0", false, false, true, 120},
		{"narrowed", nchw.Narrow(1, 1, 2, 1), "[2, 2, 4, 5] [60, 20, 5, 1] 20", false, false, false, 120},
		{"stepped", nchw.Narrow(3, 0, 3, 2), "[2, 3, 4, 3] [60, 20, 5, 2] 0", false, false, false, 120},
		{"selected", nchw.Select(1, 2), "[2, 4, 5] [60, 5, 1] 40", false, false, false, 120},
		{"unsqueezed in front", nchw.Unsqueeze(0), "[1, 2, 3, 4, 5] [120, 60, 20, 5, 1] 0", true, false, true, 120},
		{"unsqueezed at the end", nchw.Unsqueeze(4), "[2, 3, 4, 5, 1] [60, 20, 5, 1, 1] 0", true, false, true, 120},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := text(c.l); got != c.text {
				t.Errorf("layout %s, want %s", got, c.text)
			}
			if c.l.IsContiguous() != c.contiguous || c.l.IsChannelsLast() != c.last || c.l.IsDense() != c.dense {
				t.Errorf("contiguous %v, channels last %v, dense %v; want %v, %v, %v",
					c.l.IsContiguous(), c.l.IsChannelsLast(), c.l.IsDense(), c.contiguous, c.last, c.dense)
			}
			if got := c.l.StorageElems(); got != c.storage {
				t.Errorf("needs a storage of %d, want %d", got, c.storage)
			}
		})
	}
}

func TestLikeDense(t *testing.T) {
	base := Contiguous(D(2, 3, 4))
	narrow, transposed := base.Narrow(2, 0, 2, 1), base.Transpose(0, 2)
	holes := transposed.Narrow(0, 0, 2, 1)
	for _, c := range []struct {
		l    Layout
		want string
	}{
		{base, "[2, 3, 4] [12, 4, 1] 0"},
		{narrow, "[2, 3, 2] [6, 2, 1] 0"},
		{transposed, "[4, 3, 2] [1, 4, 12] 0"},
		{holes, "[2, 3, 2] [1, 2, 6] 0"},
	} {
		if got := text(c.l.LikeDense()); got != c.want {
			t.Errorf("like %s: %s, want %s", text(c.l), got, c.want)
		}
	}
}

func TestBroadcastAndElementwise(t *testing.T) {
	a, b := Contiguous(D(4, 1, 3)), Contiguous(D(5, 1))
	got, err := Elementwise(&a, nil, &b)
	if err != nil || text(got) != "[4, 5, 3] [15, 3, 1] 0" {
		t.Errorf("%s, %v", text(got), err)
	}
	last := ChannelsLast(D(2, 3, 4, 5))
	if got, err := Elementwise(&last, &last); err != nil || got != last {
		t.Errorf("two channels-last operands give %s, %v", text(got), err)
	}
	bias := Contiguous(D(1, 3, 1, 1))
	if got, err := Elementwise(&last, &bias); err != nil || got != last {
		t.Errorf("a channels-last operand and one that broadcasts give %s, %v", text(got), err)
	}
	for _, c := range [][2]Dims{{D(2, 3), D(4)}, {D(2), D(3, 3)}, {D(0), D(2)}} {
		if d, err := Broadcast(c[0], c[1]); err == nil {
			t.Errorf("%v and %v broadcast to %v", c[0], c[1], d)
		}
	}
}
