package op

import (
	"fmt"
	"sort"
	"strings"
	"unicode"
)

// table holds every row by name, bySig those that a spec may use by the word
// that it writes.
var (
	table = map[string]*Row{}
	bySig = map[string]*Signed{}
)

// Signed is a row with its parsed signature.
type Signed struct {
	Row *Row
	Sig *Sig
}

// define adds a row to the table. A duplicate name or a signature that does
// not parse is a programming error and panics at start-up.
func define(r Row) *Row {
	if table[r.Name] != nil {
		panic("op: row " + r.Name + " is defined twice")
	}
	p := &r
	table[r.Name] = p
	if r.Sig != "" {
		sig, err := ParseSig(r.Sig)
		if err != nil {
			panic("op: row " + r.Name + ": " + err.Error())
		}
		if bySig[sig.Key] != nil {
			panic("op: two rows answer to " + sig.Key)
		}
		bySig[sig.Key] = &Signed{p, sig}
	}
	return p
}

// Lookup returns the operator that a spec calls name, or nil.
func Lookup(name string) *Signed { return bySig[name] }

// Names lists the operators that a spec may use, sorted.
func Names() []string {
	names := make([]string, 0, len(bySig))
	for n := range bySig {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Rows lists all rows, sorted by name.
func Rows() []*Row {
	rows := make([]*Row, 0, len(table))
	for _, r := range table {
		rows = append(rows, r)
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].Name < rows[j].Name })
	return rows
}

// nodeName derives the name of an autograd node from an operator's:
// "native_layer_norm" becomes "NativeLayerNormBackward0". A letter after a digit
// is a capital, too.
func nodeName(name string) string {
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

// Row0 returns the row of that name; it panics if there is none.
func Row0(name string) *Row {
	r := table[name]
	if r == nil {
		panic("op: no row " + name)
	}
	return r
}

// InPlaceOf returns the in-place form of an operator, or nil.
func InPlaceOf(r *Row) *Row {
	if p := table[r.Name+"_"]; p != nil && p.InPlace {
		return p
	}
	return nil
}
