package op

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"unicode"
)

// Table holds operators by their names, and those that a spec may use by the word
// that it writes.
type Table struct {
	rows     map[string]*Op
	bySig    map[string]*Signed
	evidence map[string]Evidence
}

// NewTable is an empty table of operators that rest on evidence, which is written as
// WriteEvidence does.
func NewTable(evidence string) *Table {
	return &Table{rows: map[string]*Op{}, bySig: map[string]*Signed{}, evidence: readEvidence(evidence)}
}

// Signed is a row with its parsed signature.
type Signed struct {
	Op  *Op
	Sig *Sig
}

// Define adds a row to the table. A duplicate name or a signature that does
// not parse is a programming error and panics at start-up.
func (t *Table) Define(r Op) *Op {
	if t.rows[r.Name] != nil {
		panic("op: row " + r.Name + " is defined twice")
	}
	p := &r
	t.rows[r.Name] = p
	p.evidence = t.evidence[r.Name]
	if p.Of != nil {
		p.Of.inPlace = p
		if p.Takes == nil {
			p.Takes = p.Of.Takes
		}
	}
	if p.Takes != nil {
		p.Taking(p.Takes)
	}
	if p.View != nil && p.Eval == nil {
		p.Eval = evalView
	}
	if r.Sig != "" {
		sig, err := ParseSig(r.Sig)
		if err != nil {
			panic("op: row " + r.Name + ": " + err.Error())
		}
		if t.bySig[sig.Key] != nil {
			panic("op: two rows answer to " + sig.Key)
		}
		t.bySig[sig.Key] = &Signed{p, sig}
		if slices.ContainsFunc(sig.Params, func(p Param) bool { return p.Kind == KTensors }) {
			p.CastList = [2]int{0, math.MaxInt}
		}
		p.sized = slices.ContainsFunc(sig.Params, Param.isSize)
	}
	return p
}

// Sized reports whether a call of the row gives the sizes of a tensor as numbers.
func (r *Op) Sized() bool { return r.sized }

// isSize reports whether an argument is the sizes of a tensor.
func (p Param) isSize() bool {
	return p.Kind == KInts && (p.Name == "size" || p.Name == "sizes" || p.Name == "shape")
}

// Taking makes the row check the types of its inputs first.
func (r *Op) Taking(check func(*Call)) *Op {
	run := r.Run
	r.Takes, r.Run = check, func(c *Call) {
		check(c)
		run(c)
	}
	return r
}

// Evaluated sets how values are computed.
func (r *Op) Evaluated(e *Eval) *Op {
	r.Eval = e
	return r
}

// Runs sets a Run that calls the row itself, as Derive, behind the check of types.
func (r *Op) Runs(run func(*Call)) *Op {
	if r.Run = run; r.Takes != nil {
		r.Taking(r.Takes)
	}
	return r
}

// Derive sets a derivative that calls the row itself, which its definition cannot
// do: Go knows no variable that depends on itself. Nothing may need it before all
// rows are there.
func (r *Op) Derive(grad func(*Back)) *Op {
	r.Grad = grad
	return r
}

// Lookup returns the operator that a spec calls name, or nil.
func (t *Table) Lookup(name string) *Signed { return t.bySig[name] }

// Named returns the row that a report, a trace or a message names, or nil.
func (t *Table) Named(name string) *Op { return t.rows[name] }

// Names lists the operators that a spec may use, sorted.
func (t *Table) Names() []string {
	names := make([]string, 0, len(t.bySig))
	for n := range t.bySig {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Rows lists all rows, sorted by name.
func (t *Table) Rows() []*Op {
	rows := make([]*Op, 0, len(t.rows))
	for _, r := range t.rows {
		rows = append(rows, r)
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].Name < rows[j].Name })
	return rows
}

// NodeName derives the name of an autograd node from an operator's:
// "native_layer_norm" becomes "NativeLayerNormBackward0". A letter after a digit
// is a capital, too.
func NodeName(name string) string {
	var b strings.Builder
	capital := true
	for _, r := range strings.TrimLeft(name, "_") {
		switch {
		case r == '_':
			capital = true
			continue
		case capital:
			r = unicode.ToUpper(r)
		}
		b.WriteRune(r)
		capital = unicode.IsDigit(r)
	}
	return fmt.Sprintf("%sBackward0", b.String())
}

// InPlaceForm is the in-place form of the operator, or nil; one that is made of other
// operators too.
func (r *Op) InPlaceForm() *Op { return r.inPlace }

// InPlaceInSpecs is the in-place form that specs may ask for, or nil.
func (r *Op) InPlaceInSpecs() *Op {
	if p := r.inPlace; p != nil && p.InPlace {
		return p
	}
	return nil
}
