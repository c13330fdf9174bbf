package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/docs"
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/gate"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/specs"
)

// lineWidth is how wide lists are: a terminal of a common width shows them
// without broken lines.
const lineWidth = 100

// width is how wide lines may be: lineWidth, or less in a terminal that is narrower.
func (s *Streams) width() int {
	if s.Columns == 0 {
		return lineWidth
	}
	return max(40, min(lineWidth, s.Columns))
}

// terminal is how wide the terminal is for which text is written; 0: text is not for one.
func (s *Streams) terminal() int {
	if !s.OutTTY || s.Columns == 0 {
		return 0
	}
	return max(40, s.Columns)
}

// people writes text for people: lines that are wider than the terminal are broken at spaces.
func (s *Streams) people(f func(io.Writer) error) error {
	width := s.terminal()
	if width == 0 {
		return f(s.Out)
	}
	p := report.NewProse(s.Out, width)
	if err := f(p); err != nil {
		return err
	}
	return p.Flush()
}

// ascii reports whether the locale has no other characters.
func (s *Streams) ascii() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v, _ := s.Env(name); v != "" {
			v = strings.ToLower(v)
			return !strings.Contains(v, "utf-8") && !strings.Contains(v, "utf8")
		}
	}
	return true
}

// listing is one thing that memplan list can show.
type listing struct {
	name  string
	doc   string
	table func() (*report.Table, error)
	data  func() (any, error)

	only func(text string) listing // of those with a text in the name; nil: it takes none
}

// listings is the table behind memplan list.
var listings = []listing{
	{"layers", "layers that a spec may use, with their arguments", signatures(layerSigs), items(layerSigs), nil},
	{"ops", "operators that a spec may use, with their arguments and what is known of them", opTable, opData, nil},
	{"optimizers", "optimizers, with their arguments", signatures(optimizerSigs), items(optimizerSigs), nil},
	{"devices", "GPUs, with memory and context (~: not measured, of SMs: without a source)", deviceTable, deviceData, nil},
	{"changes", "changes that are tried where a job does not fit", changeTable, changeData, nil},
	{"formats", "formats of reports", formatTable, func() (any, error) { return report.Formats.Names(), nil }, nil},
	{"rules", "rules of memplan check", ruleTable, ruleData, nil},
	{"notes", "codes of warnings and of what figures leave out", noteTable, noteData, nil},
	{"topics", "topics of the spec language (memplan explain TOPIC)", topicTable, topicData, nil},
	{"presets", "models that come with memplan (preset:NAME in place of a file)", presetTable, presetData, nil},
	modelListing(""),
}

// otherNames are what one might call a listing, too.
var otherNames = map[string]string{"warnings": "notes", "codes": "notes", "gpus": "devices", "operators": "ops", "modules": "layers"}

func newList(s *Streams) *cobra.Command {
	var format string
	var names []string
	long := "List what memplan knows:\n"
	for _, l := range listings {
		names = append(names, l.name)
		long += fmt.Sprintf("\n  %-11s %s", l.name, l.doc)
	}
	c := &cobra.Command{
		Use:       "list {" + strings.Join(names, " | ") + "} [TEXT]",
		Short:     "List layers, operators, optimizers, GPUs, changes, formats, rules, notes, topics, presets and models",
		Long:      long,
		Example:   "  memplan list devices\n  memplan list presets --format json\n  memplan list models qwen2.5",
		ValidArgs: names,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 2 && slices.ContainsFunc(listings, func(l listing) bool { return l.name == args[0] && l.only != nil }) {
				return nil
			}
			if len(args) == 2 && slices.Contains(names, args[0]) {
				return usagef("list %s takes no name; memplan explain %s tells what is known of one", args[0], args[1])
			}
			if len(args) != 1 {
				return usagef("list needs one of %s", strings.Join(names, ", "))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := oneOf("format", format, textJSON); err != nil {
				return err
			}
			asked := args[0]
			if known, ok := otherNames[asked]; ok {
				asked = known
			}
			for _, l := range listings {
				if l.name != asked {
					continue
				}
				if len(args) == 2 {
					l = l.only(args[1])
				}
				if format == "json" {
					v, err := l.data()
					if err != nil {
						return err
					}
					return report.JSON(s.Out, v)
				}
				t, err := l.table()
				if err != nil {
					return err
				}
				if terminal := s.terminal(); terminal == 0 {
					t.Width, t.Loose = min(t.Width, s.width()), true
				} else {
					t.Width = min(cmp.Or(t.Width, terminal), terminal)
				}
				return t.Write(s.Out)
			}
			return usagef("cannot list %q%s; allowed are %s", args[0], didYouMean(args[0], names), strings.Join(names, ", "))
		},
	}
	c.Flags().StringVar(&format, "format", "text", "text or json")
	completeFlag(c, "format", func() []string { return textJSON })
	return c
}

// signature is a callable of specs.
type signature struct {
	Name      string `json:"name"`
	Signature string `json:"signature"`
}

func layerSigs() []signature {
	var out []signature
	for _, n := range layers.Names() {
		out = append(out, signature{n, layers.Lookup(n).Sigs()[0].String()})
	}
	return out
}

// operator is a row of the op table in JSON.
type operator struct {
	signature
	Evidence op.Evidence `json:"evidence"`
}

func operators() []operator {
	var out []operator
	for _, n := range aten.Names() {
		s := aten.Lookup(n)
		out = append(out, operator{signature{n, s.Sig.String()}, s.Op.Evidence()})
	}
	return out
}

func opData() (any, error) { return operators(), nil }

func opTable() (*report.Table, error) {
	t := &report.Table{Header: []string{"Name", "evidence", "as in PyTorch"}, Width: lineWidth}
	for _, o := range operators() {
		t.Rows = append(t.Rows, []string{o.Name, string(o.Evidence.Basis), o.Signature})
	}
	return t, nil
}

func optimizerSigs() []signature {
	var out []signature
	for _, n := range optim.Names() {
		out = append(out, signature{n, optim.Lookup(n).Signature().String()})
	}
	return out
}

func signatures(list func() []signature) func() (*report.Table, error) {
	return func() (*report.Table, error) {
		t := &report.Table{Header: []string{"Name", "as in PyTorch"}, Width: lineWidth}
		for _, s := range list() {
			t.Rows = append(t.Rows, []string{s.Name, s.Signature})
		}
		return t, nil
	}
}

func items(list func() []signature) func() (any, error) {
	return func() (any, error) { return list(), nil }
}

// gpu is a row of the GPU table in JSON.
type gpu struct {
	Name           string       `json:"name"`
	DisplayName    string       `json:"display_name"`
	Aliases        []string     `json:"aliases"`
	Arch           string       `json:"arch"`
	SMs            int          `json:"sms"`
	SMsSource      string       `json:"sms_source"` // "": there is none
	TotalBytes     tensor.Bytes `json:"total_bytes"`
	TotalAssumed   bool         `json:"total_assumed"`
	TotalSource    string       `json:"total_source"`
	ContextBytes   tensor.Bytes `json:"context_bytes"`
	ContextAssumed bool         `json:"context_assumed"`
	ContextSource  string       `json:"context_source"`
}

func deviceData() (any, error) {
	var out []gpu
	for _, g := range device.All() {
		out = append(out, gpuData(&g))
	}
	return out, nil
}

func gpuData(g *device.GPU) gpu {
	return gpu{g.Name, g.Display, g.Aliases, fmt.Sprintf("sm_%d", g.Arch), g.SMs, g.SMsSource,
		g.Total.Value, g.Total.Assumed, g.Total.Source, g.Context.Value, g.Context.Assumed, g.Context.Source}
}

func deviceTable() (*report.Table, error) {
	t := &report.Table{Header: []string{"Name", "GPU", "arch", "SMs", "total", "context", "usable"},
		Numbers: []bool{false, false, false, true, true, true, true}, Spare: []int{1, 3, 5}}
	for _, g := range device.All() {
		usable := g.Usable().String()
		if g.Total.Assumed {
			usable = "~" + usable
		}
		t.Rows = append(t.Rows, []string{g.Name, g.Display, fmt.Sprintf("sm_%d", g.Arch), multiprocessors(&g),
			figure(g.Total), figure(g.Context), usable})
	}
	return t, nil
}

// multiprocessors prints how many a GPU has, with ~ before a number without a source.
func multiprocessors(g *device.GPU) string {
	if g.SMsSource == "" {
		return fmt.Sprintf("~%d", g.SMs)
	}
	return fmt.Sprint(g.SMs)
}

// figure prints a figure, with ~ before one that was not measured.
func figure(f device.Figure) string {
	if f.Assumed {
		return "~" + f.Value.String()
	}
	return f.Value.String()
}

func formatTable() (*report.Table, error) {
	t := &report.Table{Header: []string{"Command", "format", "what for"}, Width: lineWidth}
	for _, f := range report.Formats.All() {
		t.Rows = append(t.Rows, []string{"estimate", f.Name, f.Doc})
	}
	for _, f := range gate.Formats.All() {
		t.Rows = append(t.Rows, []string{"check", f.Name, f.Doc})
	}
	return t, nil
}

// ruleDatum is a rule of memplan check in JSON.
type ruleDatum struct {
	ID       string        `json:"id"`
	Name     string        `json:"name"`
	Severity gate.Severity `json:"severity"`
	Doc      string        `json:"doc"`
	Help     string        `json:"help"`
}

func ruleDataOf(r *gate.Rule) ruleDatum { return ruleDatum{r.ID, r.Name, r.Severity, r.Doc, r.Help} }

func ruleData() (any, error) {
	var out []ruleDatum
	for _, r := range gate.Rules() {
		out = append(out, ruleDataOf(r))
	}
	return out, nil
}

func ruleTable() (*report.Table, error) {
	t := &report.Table{Header: []string{"Rule", "name", "severity", "finds that"}, Width: lineWidth}
	for _, r := range gate.Rules() {
		t.Rows = append(t.Rows, []string{r.ID, r.Name, string(r.Severity), r.Doc})
	}
	return t, nil
}

// noteDatum is a code of notes in JSON.
type noteDatum struct {
	Code    string `json:"code"`
	LeftOut bool   `json:"left_out"` // else a warning
	Rule    string `json:"rule"`     // of memplan check; "": none
	Doc     string `json:"doc"`
}

func noteData() (any, error) {
	var out []noteDatum
	for _, c := range note.Codes() {
		out = append(out, noteDatum{c.Name, c.LeftOut, c.Rule, c.Doc})
	}
	return out, nil
}

func noteTable() (*report.Table, error) {
	t := &report.Table{Header: []string{"Code", "rule", "says"}, Width: lineWidth}
	for _, c := range note.Codes() {
		t.Rows = append(t.Rows, []string{c.Name, c.Rule, c.Doc})
	}
	return t, nil
}

// topicDatum is a topic of the language in JSON.
type topicDatum struct {
	Topic string `json:"topic"`
	Title string `json:"title"`          // of the section that it is or lies in
	Text  string `json:"text,omitempty"` // Markdown
}

// topics lists the sections of the language's reference, and the keys in them.
func topics() []topicDatum {
	var out []topicDatum
	for _, t := range docs.Topics() {
		out = append(out, topicDatum{Topic: t.Name, Title: t.Title})
	}
	return out
}

func topicData() (any, error) { return topics(), nil }

func topicTable() (*report.Table, error) {
	t := &report.Table{Header: []string{"Topic", "in the reference"}, Width: lineWidth}
	for _, d := range topics() {
		t.Rows = append(t.Rows, []string{d.Topic, strings.ReplaceAll(d.Title, "`", "")})
	}
	return t, nil
}

// preset describes a preset: its params with their defaults.
type preset struct {
	Name   string         `json:"name"`
	Doc    string         `json:"doc"`
	Params map[string]any `json:"params"`
	names  []string
}

func presets() ([]preset, error) {
	var out []preset
	for _, n := range presetNames() {
		p, err := lookupPreset(n)
		if err != nil {
			return nil, err
		}
		out = append(out, *p)
	}
	return out, nil
}

func presetNames() []string {
	names := specs.Names()
	for _, t := range specs.HFTypes() {
		names = append(names, hfPreset+t)
	}
	return names
}

func lookupPreset(name string) (*preset, error) {
	text, err := specs.Preset(name)
	if err != nil {
		return nil, err
	}
	s, err := spec.Parse(presetPrefix+name, text, spec.Options{})
	if err != nil {
		return nil, err
	}
	p := &preset{Name: name, Doc: specs.Doc(text), Params: map[string]any{}, names: s.ParamNames()}
	for _, k := range p.names {
		p.Params[k], _ = s.Env.Lookup(k)
	}
	delete(p.Params, "unsupported") // what presets of hf/ say to their loader
	delete(p.Params, graph.RefusedParam)
	return p, nil
}

func presetData() (any, error) { return presets() }

func presetTable() (*report.Table, error) {
	all, err := presets()
	t := &report.Table{Header: []string{"Name", "model (memplan explain preset:NAME shows its params)"}, Width: lineWidth}
	for _, p := range all {
		t.Rows = append(t.Rows, []string{p.Name, p.Doc})
	}
	return t, err
}

// isTable reports a list of lists, which says how a preset is built rather than
// what one would change.
func isTable(x any) bool {
	list, _ := x.([]any)
	for _, e := range list {
		if _, ok := e.([]any); ok {
			return true
		}
	}
	return false
}
