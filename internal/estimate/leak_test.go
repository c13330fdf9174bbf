package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/trace"
)

// TestLeaked names what made the memory that grows, also in jobs of fewer than two
// periods, in which what lasts from the first step on is as old as what leaks.
func TestLeaked(t *testing.T) {
	for _, c := range []struct {
		optimizer string
		every     int
		of        string // what is kept
		steps     int    // 0: until it settles
		op, layer string
	}{
		{"SGD", 1, "out", 0, "addmm", "layers.2"},
		{"AdamW", 1, "out", 0, "addmm", "layers.2"},
		{"AdamW", 100, "out", 0, "addmm", "layers.2"},
		{"AdamW", 100, "out", 101, "addmm", "layers.2"}, // the first step is in the period before
		{"AdamW", 100, "out", 150, "addmm", "layers.2"},
		{"AdamW", 100, "out", 199, "addmm", "layers.2"},
		{"AdamW", 100, "out", 200, "addmm", "layers.2"},
		{"AdamW", 100, "out", 230, "addmm", "layers.2"},
		{"AdamW", 100, "loss", 150, "nll_loss_forward", ""},
		{"{SGD: {momentum: 0.9}}", 100, "out", 150, "addmm", "layers.2"},
	} {
		text := everyStep + fmt.Sprintf("  - optimizer_step\n  - zero_grad\n  - {keep: {of: %s, in: kept, detach: true}, every: %d}\n", c.of, c.every) +
			fmt.Sprintf("train: {batch_size: 300, optimizer: %s, steps: %d}\ndevice: {memory: 700MiB}\n", c.optimizer, c.steps)
		if c.steps == 0 {
			text = strings.Replace(text, ", steps: 0", "", 1)
		}
		o, r := estimateText(t, text)
		if l := r.Verdict.Leak; l == nil || l.Op != c.op || l.Layer != c.layer {
			t.Errorf("%s, %s kept in every %d steps of %d: %+v", c.optimizer, c.of, c.every, o.Played.Steps, l)
		}
	}
}

// TestLoopsOfGrowth holds that what was left out is replayed though memory grows, but
// for what goes on for ever, unless a leak is followed.
func TestLoopsOfGrowth(t *testing.T) {
	finite, endless := trace.Loop{Begin: 1, End: 2, Turns: 7, Steps: 1}, trace.Loop{Begin: 1, End: 3, Steps: 2}
	for _, c := range []struct {
		growing        bool
		played         []trace.Loop
		free, followed int // how many of them
	}{
		{true, nil, 0, 0},
		{true, []trace.Loop{finite}, 1, 1},
		{true, []trace.Loop{finite, finite}, 2, 2},
		{true, []trace.Loop{finite, endless}, 1, 2},
		{true, []trace.Loop{endless}, 0, 1},
		{false, []trace.Loop{finite, endless}, 2, 2},
	} {
		p := &engine.Played{Loops: c.played}
		if c.growing {
			p.Growth = 512
		}
		if free, followed := loops(p, false), loops(p, true); len(free) != c.free || len(followed) != c.followed {
			t.Errorf("%+v: %v, %v", c, free, followed)
		}
	}

	// A job that grows and ends in steps that were left out.
	text := everyStep + "  - optimizer_step\n  - zero_grad\n  - {keep: {of: out, in: outs, detach: true}, every: 20}\n  - {empty_cache: , every: 1999}\n" +
		"train: {batch_size: 300, optimizer: AdamW}\n"
	o, _ := estimateText(t, text)
	p := o.Played
	if n := len(p.Loops); p.Growth <= 0 || n == 0 || p.Loops[n-1].Turns == 0 || len(loops(p, false)) != n {
		t.Fatalf("growth %v, loops %v", p.Growth, p.Loops)
	}
}
