package cli

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/advise"
	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/gate"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
)

// explainers is the table of what memplan can explain by name.
var explainers = []explainer{
	{"op", op.Names, explainOp},
	{"layer", graph.LayerNames, explainLayer},
	{"optimizer", optim.Names, explainOptimizer},
	{"device", deviceNames, explainDevice},
	{"change", advise.Names, explainChange},
	{"rule", gate.RuleNames, explainRule},
}

// castDocs says what autocast does to an operator's inputs.
var castDocs = map[op.CastPolicy]string{
	op.CastNone: "runs in the type of its inputs", op.CastLower: "inputs are converted to the lower precision", op.CastFP32: "inputs are converted to float32",
	op.CastFP32Out: "the result is float32 unless a type is given", op.CastPromote: "inputs are converted to the widest type among them",
	op.CastForbidden: "PyTorch refuses it", op.CastHalf: "inputs are converted to float16",
}

// explainOp says what a row of the op table holds.
func explainOp(name string) (string, any) {
	s := op.Lookup(name)
	r := s.Row
	d := struct {
		Name        string   `json:"name"`
		Signature   string   `json:"signature"`
		Aten        string   `json:"aten"`
		Autocast    string   `json:"autocast"`
		View        bool     `json:"view"`
		Backward    string   `json:"backward"`
		Saves       []string `json:"saves"`
		NotModelled string   `json:"not_modelled"`
		Source      string   `json:"source"`
	}{name, s.Sig.String(), r.Name, castDocs[r.Cast], r.View != nil, r.Node, []string{}, r.NotModelled, r.Source}
	for _, sv := range r.Save {
		what := fmt.Sprintf("input %d", sv.Index)
		if sv.Out {
			what = fmt.Sprintf("result %d", sv.Index)
		}
		if len(sv.IfNeeds) > 0 {
			what += fmt.Sprintf(" (if a gradient of input %s is asked for)", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(sv.IfNeeds)), " or "), "[]"))
		}
		d.Saves = append(d.Saves, what)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "operator %s\n  %s\n", name, d.Signature)
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-14s %s\n", what, text)
		}
	}
	line("ATen", d.Aten)
	switch {
	case d.View:
		line("memory", "a view: the result shares the storage of input 0")
	case r.Composite:
		line("memory", "made of other operators; export trace shows them")
	}
	line("backward", d.Backward)
	line("saves", strings.Join(d.Saves, ", "))
	line("autocast", d.Autocast)
	line("not modelled", d.NotModelled)
	line("source", d.Source)
	return b.String(), d
}

func explainLayer(name string) (string, any) {
	l := graph.LookupLayer(name)
	d := struct {
		Name      string `json:"name"`
		Signature string `json:"signature"`
		Forward   string `json:"forward,omitempty"`
		Inputs    string `json:"inputs,omitempty"`
	}{name, graph.LayerSig(name).String(), l.Forward, l.Inputs}
	text := fmt.Sprintf("layer %s\n  %s\n", name, d.Signature)
	if d.Inputs != "" {
		text += fmt.Sprintf("  %-14s %s (? optional; after * by keyword)\n", "takes", d.Inputs)
	}
	if d.Forward != "" {
		text += fmt.Sprintf("  %-14s %s\n", "at a call", d.Forward)
	}
	return text, d
}

func explainOptimizer(name string) (string, any) {
	d := signature{name, optim.Lookup(name).Signature().String()}
	return fmt.Sprintf("optimizer %s\n  %s\n", name, d.Signature), d
}

func deviceNames() []string {
	var out []string
	for _, g := range device.All() {
		out = append(append(out, g.Name), g.Aliases...)
	}
	return out
}

func explainDevice(name string) (string, any) {
	g, err := device.Lookup(name)
	if err != nil {
		return err.Error() + "\n", nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "device %s: %s\n  %-14s sm_%d, %d streaming multiprocessors\n", g.Name, g.Display, "chip", g.Arch, g.SMs)
	for _, f := range []struct {
		what string
		f    device.Figure
	}{{"total", g.Total}, {"context", g.Context}} {
		how := "measured"
		if f.f.Assumed {
			how = "assumed"
		}
		fmt.Fprintf(&b, "  %-14s %v, %s between %v and %v: %s\n", f.what, f.f.Value, how, f.f.Low, f.f.High, f.f.Source)
	}
	fmt.Fprintf(&b, "  %-14s %v\n", "usable", g.Usable())
	return b.String(), gpuData(g)
}

// explainRule says what a rule of memplan check means.
func explainRule(name string) (string, any) {
	d := ruleDataOf(gate.LookupRule(name))
	return fmt.Sprintf("rule %s: %s\n  %-14s %s (rules: {%s: error | warning | note | off} in %s)\n  %-14s %s\n  %s\n",
		d.ID, d.Name, "severity", d.Severity, d.ID, gate.ConfigName, "finds that", d.Doc, strings.ReplaceAll(d.Help, "\n", "\n  ")), d
}
