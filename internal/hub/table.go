package hub

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// rows has a line of JSON for each source, and for each configuration: its names, how many
// parameters its model has, and what differs from the defaults of the model type. Of some models it
// has the type alone.
//
//go:embed models.jsonl
var rows []byte

// Model is a row of the table.
type Model struct {
	Names      []string // on the hub; several models have one configuration
	Type       string   // the model_type
	Parameters int64
	Task       string // for which Parameters counts, where the configuration is for none; else ""
	Source     Source
	As         string // the model of the source whose figures these are; "": one of Names
	Config     []byte // as a config.json; nil: the table has the type alone
}

// Source is where figures are published.
type Source struct{ Name, URL string }

// Named is a model of the table by one of its names.
type Named struct {
	Name string
	*Model
}

// table reads the rows once.
var table = sync.OnceValue(func() (t struct {
	models []*Model
	byName map[string]*Model
	names  []string
}) {
	all, err := parse(rows)
	if err != nil {
		panic(err) // the embedded table is tested
	}
	t.byName = map[string]*Model{}
	for _, m := range all {
		if m.Config != nil {
			t.models = append(t.models, m)
		}
		for _, n := range m.Names {
			t.byName[strings.ToLower(n)] = m
			if m.Config != nil {
				t.names = append(t.names, n)
			}
		}
	}
	slices.Sort(t.names)
	return t
})

// parse reads a table.
func parse(text []byte) ([]*Model, error) {
	var models []*Model
	sources := map[string]string{}
	for line := range bytes.Lines(text) {
		var row struct {
			Source     string          `json:"source"`
			URL        string          `json:"url"` // of a line that gives a source
			Names      string          `json:"names"`
			As         string          `json:"as"`
			Parameters int64           `json:"parameters"`
			Task       string          `json:"task"`
			Type       string          `json:"type"` // of a line without a configuration
			Config     json.RawMessage `json:"config"`
		}
		if err := json.Unmarshal(line, &row); err != nil {
			return nil, fmt.Errorf("%w in %s", err, line)
		}
		if row.URL != "" {
			sources[row.Source] = row.URL
			continue
		}
		var config struct {
			Type string `json:"model_type"`
		}
		config.Type = row.Type
		if row.Config != nil {
			if err := json.Unmarshal(row.Config, &config); err != nil {
				return nil, fmt.Errorf("%w in %s", err, line)
			}
		}
		m := &Model{Type: config.Type, Parameters: row.Parameters, Task: row.Task, Source: Source{row.Source, sources[row.Source]}, As: row.As, Config: row.Config}
		for pattern := range strings.FieldsSeq(row.Names) {
			m.Names = append(m.Names, expand(pattern)...)
		}
		models = append(models, m)
	}
	return models, nil
}

// expand lists the names of a pattern: a{b,c} is ab and ac.
func expand(pattern string) []string {
	before, rest, ok := strings.Cut(pattern, "{")
	if !ok {
		return []string{pattern}
	}
	choices, after, _ := strings.Cut(rest, "}")
	var out []string
	for choice := range strings.SplitSeq(choices, ",") {
		for _, tail := range expand(after) {
			out = append(out, before+choice+tail)
		}
	}
	return out
}

// From says where the figures are from.
func (m *Model) From() string {
	if m.As != "" {
		return "as " + m.As + ": " + m.Source.URL
	}
	return m.Source.URL
}

// Models lists the table.
func Models() []*Model { return table().models }

// Names lists the names in the table, sorted.
func Names() []string { return table().names }

// Matching lists the models with a text in their names, in any case, by name.
func Matching(text string) []Named {
	var out []Named
	for _, n := range Names() {
		if strings.Contains(strings.ToLower(n), strings.ToLower(text)) {
			out = append(out, Named{n, Lookup(n)})
		}
	}
	return out
}

// Lookup finds a model of the table by its name, in any case, or a quantized copy of it; nil if
// there is none.
func Lookup(name string) *Model {
	if m := table().byName[strings.ToLower(name)]; m != nil {
		if m.Config == nil {
			return nil
		}
		return m
	}
	for _, c := range copies {
		if n := len(name) - len(c.suffix); n > 0 && strings.EqualFold(name[n:], c.suffix) {
			if m := Lookup(name[:n]); m != nil && !bytes.Contains(m.Config, []byte(`"quantization_config"`)) {
				quantized := *m
				quantized.Names = []string{name}
				if m.As == "" {
					quantized.As = name[:n]
				}
				quantized.Config = fmt.Appendf(nil, `{"quantization_config":%s,%s`, c.config, m.Config[1:])
				return &quantized
			}
		}
	}
	return nil
}

// copies are the ends of the names that quantized copies have beside the model of the same owner,
// and the quantization_config in their configurations.
var copies = []struct{ suffix, config string }{
	{"-bnb-4bit", `{"quant_method":"bitsandbytes","load_in_4bit":true,"bnb_4bit_quant_type":"nf4","bnb_4bit_compute_dtype":"bfloat16","bnb_4bit_use_double_quant":true}`},
	{"-AWQ", `{"quant_method":"awq"}`},
	{"-GPTQ-Int4", `{"quant_method":"gptq"}`},
	{"-GPTQ-Int8", `{"quant_method":"gptq"}`},
	{"-FP8", `{"quant_method":"fp8"}`},
}

// TypeOf is the model_type of a model, also of one whose configuration is not in the table; "" if
// it is not known.
func TypeOf(name string) string {
	if m := table().byName[strings.ToLower(name)]; m != nil {
		return m.Type
	}
	return ""
}
