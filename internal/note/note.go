// Package note holds what readers must know of figures beside the figures:
// warnings, doubts, and what is left out. A note is made where it arises and
// goes to the report as it is; what it is about its code says, and its text is
// for people.
package note

import (
	"fmt"
	"slices"
	"strings"
)

// Note is one of them.
type Note struct {
	Code  *Code  `json:"code"`
	Text  string `json:"text"`
	Place Place  `json:"place,omitzero"`

	alone string // the text where the rest of the report is not beside it; "": Text
}

// Place is what a note is about, as far as it is known: a line of a file, a key
// of the spec, an operator.
type Place struct {
	File string   `json:"file,omitempty"`
	Line int      `json:"line,omitempty"`
	Col  int      `json:"column,omitempty"` // 0: the line as a whole
	Keys []string `json:"keys,omitempty"`   // the first that a spec has
	Op   string   `json:"op,omitempty"`     // the name of its row
}

// Code says what notes are about.
type Code struct {
	Name string // in JSON; does not change
	Doc  string // one line
	// LeftOut says that the notes name what the figures leave out; others are
	// warnings.
	LeftOut bool
	// OfSpec says that the notes are of the spec, whatever it runs on.
	OfSpec bool
	// Rule is the identifier of the rule of memplan check that the notes are filed
	// under; "": check says it otherwise, or does not meet it. Most is the heaviest
	// severity of such a finding; "": any.
	Rule, Most string
}

// codes are in no order.
var codes []*Code

// code adds a row to the table; a name that is used already is a programming
// error.
func code(c Code) *Code {
	if slices.ContainsFunc(codes, func(o *Code) bool { return o.Name == c.Name }) {
		panic("note: code " + c.Name + " is defined twice")
	}
	codes = append(codes, &c)
	return &c
}

// Codes lists the codes by their names.
func Codes() []*Code {
	return slices.SortedFunc(slices.Values(codes), func(a, b *Code) int { return strings.Compare(a.Name, b.Name) })
}

// MarshalText implements encoding.TextMarshaler.
func (c *Code) MarshalText() ([]byte, error) { return []byte(c.Name), nil }

// UnmarshalText implements encoding.TextUnmarshaler. A name that is not in the
// table is of a report that another version wrote.
func (c *Code) UnmarshalText(text []byte) error {
	*c = Code{Name: string(text)}
	if i := slices.IndexFunc(codes, func(o *Code) bool { return o.Name == c.Name }); i >= 0 {
		*c = *codes[i]
	}
	return nil
}

// New makes a note without a place.
func (c *Code) New(format string, args ...any) Note {
	return Note{Code: c, Text: fmt.Sprintf(format, args...)}
}

// At is the note with a line of a file.
func (n Note) At(file string, line int) Note {
	n.Place.File, n.Place.Line = file, line
	return n
}

// Of is the note with keys of the spec.
func (n Note) Of(keys ...string) Note {
	n.Place.Keys = keys
	return n
}

// OfOp is the note with an operator.
func (n Note) OfOp(name string) Note {
	n.Place.Op = name
	return n
}

// InReport is the note with another text for reports, where what it refers to is
// beside it.
func (n Note) InReport(format string, args ...any) Note {
	n.alone, n.Text = n.Text, fmt.Sprintf(format, args...)
	return n
}

// Alone is the text where nothing of the report is beside it.
func (n Note) Alone() string {
	if n.alone != "" {
		return n.alone
	}
	return n.Text
}

// String is the text.
func (n Note) String() string { return n.Text }

// Add appends a note unless it is in the list.
func Add(list []Note, n Note) []Note {
	if slices.ContainsFunc(list, func(o Note) bool { return o.Code == n.Code && o.Text == n.Text }) {
		return list
	}
	return append(list, n)
}

// Texts are the texts of notes.
func Texts(list []Note) []string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = n.Text
	}
	return out
}
