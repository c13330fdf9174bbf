package cli

import (
	"github.com/memplan/memplan/internal/hub"
	"github.com/memplan/memplan/internal/report"
)

// modelDatum is a model of the table in JSON.
type modelDatum struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Parameters int64  `json:"parameters"`
	Source     string `json:"source"`
	As         string `json:"as,omitempty"` // the model of the source whose figures these are
}

// modelListing lists the models of the table with a text in their names.
func modelListing(text string) listing {
	l := listing{name: "models", doc: "models of Hugging Face, by whose names specs and commands take them; of all, or of those with TEXT in the name"}
	l.table = func() (*report.Table, error) {
		t := &report.Table{Header: []string{"Name", "type", "parameters", "source"}, Numbers: []bool{false, false, true, false}, Width: lineWidth}
		for _, m := range hub.Matching(text) {
			source := m.Source.Name
			if m.As != "" {
				source += ", as " + m.As
			}
			t.Rows = append(t.Rows, []string{m.Name, m.Type, report.Count(m.Parameters), source})
		}
		return t, nil
	}
	l.data = func() (any, error) {
		out := []modelDatum{}
		for _, m := range hub.Matching(text) {
			out = append(out, modelDatum{m.Name, m.Type, m.Parameters, m.Source.URL, m.As})
		}
		return out, nil
	}
	l.only = modelListing
	return l
}
