package aten

import (
	_ "embed"

	"github.com/memplan/memplan/internal/op"
)

// EvidenceFile is where the recordings of all rows are listed.
const EvidenceFile = "internal/aten/evidence.txt"

//go:embed evidence.txt
var evidence string

// table holds all operators.
var table = op.NewTable(evidence)

// define adds a row to the table.
func define(r op.Op) *op.Op { return table.Define(r) }

// Lookup returns the operator that a spec calls name, or nil.
func Lookup(name string) *op.Signed { return table.Lookup(name) }

// Named returns the row that a report, a trace or a message names, or nil.
func Named(name string) *op.Op { return table.Named(name) }

// Names lists the operators that a spec may use, sorted.
func Names() []string { return table.Names() }

// Rows lists all rows, sorted by name.
func Rows() []*op.Op { return table.Rows() }

// WriteEvidence is the text of EvidenceFile for suites that were found for rows.
func WriteEvidence(found map[*op.Op]op.Evidence) string { return table.WriteEvidence(found) }
