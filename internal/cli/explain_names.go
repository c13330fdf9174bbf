package cli

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/docs"
	"github.com/memplan/memplan/internal/advise"
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/gate"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/report"
)

// explainers is the table of what memplan can explain by name.
var explainers = []explainer{
	{"language", docs.Names, explainLanguage},
	{"op", aten.Names, explainOp},
	{"layer", layers.Names, explainLayer},
	{"optimizer", optim.Names, explainOptimizer},
	{"device", deviceNames, explainDevice},
	{"change", advise.Names, explainChange},
	{"rule", gate.RuleNames, explainRule},
	{"preset", presetNames, explainPreset},
}

// writeField prints one thing that is known of a name, in lines of that width;
// nothing if it is empty.
func writeField(b *strings.Builder, width int, what, text string) {
	const column = 17
	for i, line := range report.Wrap(text, width-column) {
		if i > 0 {
			what = ""
		}
		if line != "" {
			fmt.Fprintf(b, "  %-*s %s\n", column-3, what, line)
		}
	}
}

// writeSignature prints how a name is called.
func writeSignature(b *strings.Builder, width int, kind, name, signature string) {
	fmt.Fprintf(b, "%s %s\n", kind, name)
	for i, line := range report.Wrap(signature, width-4) {
		if i > 0 {
			line = "  " + line
		}
		fmt.Fprintf(b, "  %s\n", line)
	}
}

// castDocs says what autocast does to an operator's inputs.
var castDocs = map[op.CastPolicy]string{
	op.CastNone: "runs in the type of its inputs", op.CastLower: "inputs are converted to the lower precision", op.CastFP32: "inputs are converted to float32",
	op.CastFP32Out: "the result is float32 unless a type is given", op.CastPromote: "inputs are converted to the widest type among them",
	op.CastForbidden: "PyTorch refuses it", op.CastHalf: "inputs are converted to float16",
}

// castDoc is castDocs of a row, with the first release in which it is so.
func castDoc(r *op.Op) string {
	doc := castDocs[r.Cast]
	if r.CastSince != nil {
		doc += fmt.Sprintf("; before %v it %s", r.CastSince.Since, castDocs[op.CastNone])
	}
	return doc
}

// explainOp says what a row of the op table holds.
func explainOp(name string, width int) (string, any) {
	s := aten.Lookup(name)
	r := s.Op
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

		Evidence op.Evidence `json:"evidence"`
	}{name, s.Sig.String(), r.Name, castDoc(r), r.View != nil, r.Node, []string{}, r.NotModelled, r.Source, r.Evidence()}
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
	writeSignature(&b, width, "operator", name, d.Signature)
	line := func(what, text string) { writeField(&b, width, what, text) }
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
	line("evidence", evidenceText(r))
	return b.String(), d
}

// evidenceText says what a row rests on.
func evidenceText(r *op.Op) string {
	e := r.Evidence()
	if e.Basis == op.Refused {
		return "none: it is not modelled, and refused"
	}
	rest := "assumed, neither recorded nor read"
	if r.Source != "" {
		rest = "read from the source, and not recorded"
	}
	later := ""
	if len(e.Releases) > 0 {
		later = "; in " + strings.Join(e.Releases, ", ") + " recorded without what kernels allocate inside"
	}
	of := func(what, suite string) string {
		if suite == "" {
			return what + rest
		}
		return what + "recorded (" + suite + ")"
	}
	switch {
	case r.Grad == nil:
		return of("", e.Forward) + later
	case e.Forward == e.Backward:
		return of("forward and backward ", e.Forward) + later
	}
	return of("forward ", e.Forward) + "; " + of("backward ", e.Backward) + later
}

func explainLayer(name string, width int) (string, any) {
	l := layers.Lookup(name)
	d := struct {
		Name      string `json:"name"`
		Signature string `json:"signature"`
		Forward   string `json:"forward,omitempty"`
		Inputs    string `json:"inputs,omitempty"`
	}{name, l.Sigs()[0].String(), l.Forward, l.Inputs}
	var b strings.Builder
	writeSignature(&b, width, "layer", name, d.Signature)
	if d.Inputs != "" {
		writeField(&b, width, "takes", d.Inputs+" (? optional; after * by keyword)")
	}
	writeField(&b, width, "at a call", d.Forward)
	return b.String(), d
}

func explainOptimizer(name string, width int) (string, any) {
	d := signature{name, optim.Lookup(name).Signature().String()}
	var b strings.Builder
	writeSignature(&b, width, "optimizer", name, d.Signature)
	return b.String(), d
}

func deviceNames() []string {
	var out []string
	for _, g := range device.All() {
		out = append(append(out, g.Name), g.Aliases...)
	}
	return out
}

func explainDevice(name string, width int) (string, any) {
	g, err := device.Lookup(name)
	if err != nil {
		return err.Error() + "\n", nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "device %s: %s\n", g.Name, g.Display)
	source := "no source"
	if g.SMsSource != "" {
		source = g.SMsSource
	}
	writeField(&b, width, "chip", fmt.Sprintf("sm_%d, %d streaming multiprocessors: %s", g.Arch, g.SMs, source))
	for _, f := range []struct {
		what string
		f    device.Figure
	}{{"total", g.Total}, {"context", g.Context}} {
		how := "measured"
		if f.f.Assumed {
			how = "assumed"
		}
		writeField(&b, width, f.what, fmt.Sprintf("%v, %s between %v and %v: %s", f.f.Value, how, f.f.Low, f.f.High, f.f.Source))
	}
	writeField(&b, width, "usable", g.Usable().String())
	return b.String(), gpuData(g)
}

// explainRule says what a rule of memplan check means.
func explainRule(name string, width int) (string, any) {
	d := ruleDataOf(gate.LookupRule(name))
	var b strings.Builder
	fmt.Fprintf(&b, "rule %s: %s\n", d.ID, d.Name)
	writeField(&b, width, "severity", fmt.Sprintf("%s (rules: {%s: error | warning | note | off} in %s)", d.Severity, d.ID, gate.ConfigName))
	writeField(&b, width, "finds that", d.Doc)
	for _, line := range report.Wrap(d.Help, width-2) {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return b.String(), d
}

// explainPreset says what a preset is and which of its params may be set.
func explainPreset(name string, width int) (string, any) {
	p, err := lookupPreset(name)
	if err != nil {
		return err.Error() + "\n", nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "preset %s\n", name)
	for _, line := range report.Wrap(p.Doc, width-2) {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	var params []string
	for _, k := range p.names {
		if _, ok := p.Params[k]; ok && !isTable(p.Params[k]) {
			literal, _ := yamlScalar(p.Params[k])
			params = append(params, k+"="+literal)
		}
	}
	writeField(&b, width, "params", strings.Join(params, " "))
	if len(params) > 0 {
		writeField(&b, width, "set by", "--set params.NAME=VALUE, or with: {NAME: VALUE} in a spec")
	}
	writeField(&b, width, "as a spec", "memplan schema --desugar "+presetPrefix+name)
	return b.String(), p
}
