package optim

import (
	"math"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/torchver"
)

// TestRange holds ranges against what the constructors accept.
func TestRange(t *testing.T) {
	for _, c := range []struct {
		row, arg string
		value    any
		ok       bool
	}{
		{"AdamW", "lr", 0.0, true},
		{"AdamW", "lr", -1e-9, false},
		{"AdamW", "betas", []float64{0, 0.999}, true},
		{"AdamW", "betas", []float64{0.9, 1}, false},
		{"AdamW", "betas", []float64{0.9}, false},
		{"AdamW", "lr", math.NaN(), false},
		{"AdamW", "amsgrad", true, true},
		{"Adadelta", "rho", 1.0, true},
		{"ASGD", "t0", -5.0, true}, // any
		{"Adafactor", "eps", nil, true},
		{"Adafactor", "d", 0.5, false},
		{"LBFGS", "history_size", int64(0), false},
		{"Muon", "ns_steps", int64(100), false},
		{"Lion", "lr", 0.0, false},
		{"AdamW8bit", "eps", -1.0, false},
	} {
		if err := Lookup(c.row).Range(c.arg, c.value); (err == nil) != c.ok {
			t.Errorf("%s(%s=%v): %v", c.row, c.arg, c.value, err)
		}
	}
}

// TestBounds looks for ranges of arguments that a signature does not have.
func TestBounds(t *testing.T) {
	for _, name := range Names() {
		row := Lookup(name)
		for _, b := range row.Bounds {
			if row.Signature().Find(b.arg) == nil {
				t.Errorf("%s has no argument %s", name, b.arg)
			}
		}
		for _, a := range row.GroupArgs {
			if row.Signature().Find(a) == nil {
				t.Errorf("%s has no argument %s for groups", name, a)
			}
		}
	}
}

// TestWarm says after how many steps an optimizer allocates the same.
func TestWarm(t *testing.T) {
	no := false
	five := int64(5)
	for _, c := range []struct {
		row  string
		args any
		want int64
	}{
		// rho_t > 5 from the sixth step on with beta2 = 0.999; with 0.5 rho_inf is 3.
		{"RAdam", &nadamArgs{Betas: []float64{0.9, 0.999}}, 6},
		{"RAdam", &nadamArgs{Betas: []float64{0.9, 0.5}}, 0},
		// 19 pairs in the first step, 20 in each other: 100 after the sixth.
		{"LBFGS", &lbfgsArgs{MaxIter: 20, HistorySize: 100}, 7},
		// The closure is called 5 times: 4 iterations a step.
		{"LBFGS", &lbfgsArgs{MaxIter: 20, MaxEval: &five, HistorySize: 4}, 3},
		{"ASGD", &asgdArgs{T0: 4, Common: Common{Foreach: &no}}, 7},
		{"ASGD", &asgdArgs{T0: 4}, 0},
	} {
		if got := Lookup(c.row).Warm(c.args); got != c.want {
			t.Errorf("%s %+v: %d, not %d", c.row, c.args, got, c.want)
		}
	}
}

// TestReleases: what is younger than PyTorch 2.6 is refused before its release.
func TestReleases(t *testing.T) {
	for _, c := range []struct {
		name  string
		given map[string]any
		since torchver.Version
	}{
		{"Muon", nil, torchver.Version{Major: 2, Minor: 9}},
		{"Adagrad", map[string]any{"fused": true}, torchver.Version{Major: 2, Minor: 12}},
	} {
		r := Lookup(c.name)
		args := argsOf(t, r, c.given)
		if _, err := r.Check(args, c.since); err != nil {
			t.Errorf("%s in %v: %v", c.name, c.since, err)
		}
		before := torchver.Version{Major: c.since.Major, Minor: c.since.Minor - 1}
		if _, err := r.Check(args, before); err == nil || !strings.Contains(err.Error(), c.since.String()) {
			t.Errorf("%s in %v: %v", c.name, before, err)
		}
	}
}
