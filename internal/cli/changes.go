package cli

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/advise"
	"github.com/memplan/memplan/internal/report"
)

// change is a row of the catalogue of changes in JSON.
type change struct {
	ID        string `json:"id"`
	Title     string `json:"title"`
	Group     string `json:"group"`
	Technique string `json:"technique"`
	Numerics  string `json:"numerics"`
	Effort    string `json:"effort"`
	Cost      string `json:"cost"`
	Source    string `json:"source"`
}

func changeRow(c *advise.Change) change {
	return change{c.ID, c.Title, c.Group, c.Technique, c.Numerics.String(), c.Effort.String(), c.Cost, c.Source}
}

func changeData() (any, error) {
	var out []change
	for _, c := range advise.All() {
		out = append(out, changeRow(c))
	}
	return out, nil
}

func changeTable() (*report.Table, error) {
	t := &report.Table{Header: []string{"Name", "change (memplan explain NAME: more)", "numbers", "work"}, Width: lineWidth}
	for _, c := range advise.All() {
		t.Rows = append(t.Rows, []string{c.ID, c.Title, c.Numerics.String(), c.Effort.String()})
	}
	return t, nil
}

// explainChange says what a row of the catalogue holds.
func explainChange(name string, width int) (string, any) {
	c := changeRow(advise.Lookup(name))
	var b strings.Builder
	fmt.Fprintf(&b, "change %s: %s\n", c.ID, c.Title)
	for _, line := range [][2]string{
		{"numbers", c.Numerics}, {"work", c.Effort}, {"time", c.Cost}, {"source", c.Source},
		{"figures", "docs/techniques.md, " + c.Technique}, {"not with", strings.Join(rivals(c), ", ")},
	} {
		writeField(&b, width, line[0], line[1])
	}
	return b.String(), c
}

// rivals are the other changes of a group, of which a proposal has one.
func rivals(c change) []string {
	var out []string
	for _, d := range advise.All() {
		if d.Group == c.Group && d.ID != c.ID {
			out = append(out, d.ID)
		}
	}
	return out
}
