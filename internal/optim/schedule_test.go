package optim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/op"
)

// written is a scheduler as a spec writes it.
func written(t *testing.T, text []byte) *Schedule {
	t.Helper()
	var named map[string]map[string]json.RawMessage
	if err := json.Unmarshal(text, &named); err != nil {
		t.Fatal(err)
	}
	for name, args := range named {
		s := &Schedule{Row: LookupSchedule(name)}
		if s.Row == nil {
			t.Fatalf("no scheduler %s", name)
		}
		vals := map[string]any{}
		for _, p := range s.Row.Signature().Params {
			raw, given := args[p.Name]
			if vals[p.Name] = p.Default; !given {
				continue
			}
			switch p.Kind {
			case op.KInts:
				var v []int64
				vals[p.Name] = v
				if err := json.Unmarshal(raw, &v); err != nil {
					t.Fatal(err)
				}
				vals[p.Name] = v
			default:
				d := json.NewDecoder(bytes.NewReader(raw))
				d.UseNumber()
				var v any
				if err := d.Decode(&v); err != nil {
					t.Fatal(err)
				}
				if n, is := v.(json.Number); is {
					if v, _ = n.Float64(); p.Kind == op.KInt {
						v, _ = n.Int64()
					}
				}
				vals[p.Name] = v
			}
		}
		s.Args = op.BindArgs(s.Row.Args, vals)
		if s.Row.Parts {
			var parts []json.RawMessage
			if err := json.Unmarshal(args["schedulers"], &parts); err != nil {
				t.Fatal(err)
			}
			for _, p := range parts {
				s.Parts = append(s.Parts, written(t, p))
			}
		}
		if err := s.Check(); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return s
	}
	return nil
}

// TestSchedules holds rates and momentums against PyTorch's (testdata/schedules.py), of an
// optimizer with two groups, and finds a scheduler that was not recorded.
func TestSchedules(t *testing.T) {
	text, err := os.ReadFile("testdata/schedules.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Cases []struct {
			Optimizer string
			Scheduler json.RawMessage
			Metrics   []string // of schedulers that step by one
			Rates     [][][2]float64
		}
	}
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	seen := map[*ScheduleRow]bool{}
	for _, c := range recorded.Cases {
		t.Run(fmt.Sprintf("%s %s", c.Optimizer, c.Scheduler), func(t *testing.T) {
			s := written(t, c.Scheduler)
			for _, p := range append(s.Parts, s) {
				seen[p.Row] = true
			}
			groups := []any{&sgdArgs{LR: 0.1, Momentum: 0.9}, &sgdArgs{LR: 0.02, Momentum: 0.9}}
			if c.Optimizer == "Adam" {
				groups = []any{&adamArgs{LR: 0.1, Betas: []float64{0.9, 0.999}}, &adamArgs{LR: 0.02, Betas: []float64{0.9, 0.999}}}
			}
			r := NewRates(s, groups, 0)
			for i, want := range c.Rates {
				for g := range groups {
					args := r.Args(g)
					if near(*number(args, "lr"), want[g][0]) && near(*momentum(args), want[g][1]) && near(r.LR(g), want[g][0]) {
						continue
					}
					t.Fatalf("step %d, group %d: rate %v, momentum %v; PyTorch %v", i, g, r.LR(g), *momentum(args), want[g])
				}
				if i < len(c.Metrics) {
					metric, err := strconv.ParseFloat(c.Metrics[i], 64)
					if err != nil {
						t.Fatal(err)
					}
					r.Measured(metric)
					continue
				}
				if s.Row.Measures != nil {
					continue
				}
				if err := r.Step(); err != nil && i+1 < len(c.Rates) {
					t.Fatal(err)
				}
			}
			if !reflect.DeepEqual(groups[0], (map[string]any{"SGD": &sgdArgs{LR: 0.1, Momentum: 0.9}, "Adam": &adamArgs{LR: 0.1, Betas: []float64{0.9, 0.999}}})[c.Optimizer]) {
				t.Error("the arguments of the optimizer itself changed")
			}
		})
	}
	for _, name := range ScheduleNames() {
		if !seen[LookupSchedule(name)] {
			t.Errorf("%s was not recorded", name)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-11*math.Max(math.Abs(b), 1e-3) }

// TestScheduleErrors: what PyTorch refuses is refused.
func TestScheduleErrors(t *testing.T) {
	int64of := func(n int64) *int64 { return &n }
	step := &Schedule{Row: LookupSchedule("StepLR"), Args: &stepArgs{StepSize: 2, Gamma: 0.1}}
	both := &Schedule{Row: LookupSchedule(chained), Args: &struct{}{}, Parts: []*Schedule{step}}
	for want, s := range map[string]*Schedule{
		"step_size must be at least 1":                                {Row: LookupSchedule("StepLR"), Args: &stepArgs{}},
		"OneCycleLR needs total_steps, or epochs and steps_per_epoch": {Row: LookupSchedule("OneCycleLR"), Args: &oneCycleArgs{}},
		"divides by zero": {Row: LookupSchedule("OneCycleLR"), Args: &oneCycleArgs{Total: int64of(10), Start: 0.1}},
		"SequentialLR needs schedulers, at least one": {Row: LookupSchedule(sequential), Args: &SequentialArgs{}},
		"2 schedulers need 1 milestones, not 0":       {Row: LookupSchedule(sequential), Args: &SequentialArgs{}, Parts: []*Schedule{step, step}},
		"factor must be below 1":                      {Row: LookupSchedule("ReduceLROnPlateau"), Args: &plateauArgs{Factor: 1}},
		"ReduceLROnPlateau steps by what an evaluation gives": {Row: LookupSchedule(chained), Args: &struct{}{},
			Parts: []*Schedule{{Row: LookupSchedule("ReduceLROnPlateau"), Args: &plateauArgs{}}}},
		"is made of single schedulers, not of Chained": {Row: LookupSchedule(sequential), Args: &SequentialArgs{}, Parts: []*Schedule{both}},
	} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	cycle := &Schedule{Row: LookupSchedule("CyclicLR"), Args: &cycleArgs{Momentum: true}}
	if err := cycle.Suits(&adagradArgs{}); err == nil || !strings.Contains(err.Error(), "sets momentum or betas") {
		t.Error(err)
	}
	one := &Schedule{Row: LookupSchedule("OneCycleLR"), Args: &oneCycleArgs{Max: 1, Total: int64of(2), Start: 0.3, Div: 25, FinalDiv: 1e4, Strategy: "cos"}}
	r := NewRates(one, []any{&sgdArgs{LR: 0.1}}, 0)
	for i, fails := range []bool{false, false, true} {
		if err := r.Step(); (err != nil) != fails {
			t.Errorf("step %d: %v", i+1, err)
		}
	}
}
