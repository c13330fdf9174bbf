package module

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// TestArguments checks that an argument that a layer does not have is no zero.
func TestArguments(t *testing.T) {
	b := &Builder{Class: &program.Class{Layer: &nn.Layer{Python: "nn.Linear"}}, Args: map[string]any{"out_features": int64(3), "in_features": nil}}
	if b.Int("out_features") != 3 || b.Int("in_features") != 0 || b.Has("in_features") || !b.Takes("in_features") || b.Takes("features") {
		t.Error("arguments are not those that were given")
	}
	for what, ask := range map[string]func(){
		"Int": func() { b.Int("features") }, "Float": func() { b.Float("features") }, "Bool": func() { b.Bool("features") }, "Str": func() { b.Str("features") },
		"Ints": func() { b.Ints("features") }, "Has": func() { b.Has("features") }, "Infer": func() { b.Infer("features", 3) },
		"Positive": func() { b.Positive("features") }, "Spatial": func() { b.Spatial("features", 2, 1) },
		"Build": func() {
			(&Env{}).Build(&Layer{Is: nn.Layer{Python: "nn.Linear"}, sigs: [2]*op.Sig{{}, {}}}, map[string]any{"features": 1}, nil, nil)
		},
	} {
		func() {
			defer func() {
				if s, is := recover().(string); !is || !strings.Contains(s, "nn.Linear has no argument features") {
					t.Errorf("%s asks for an argument that there is not, and goes on: %q", what, s)
				}
			}()
			ask()
		}()
	}
}
