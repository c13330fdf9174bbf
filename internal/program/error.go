package program

import (
	"fmt"
	"strings"
)

// Error is an error of a program that is played: shapes that do not
// fit, or something that PyTorch would refuse or memplan does not model. File and
// Line are those of the statement at work, if it has any in a spec; of what a key asks for,
// there is a Column, too.
type Error struct {
	File      string
	Line      int
	Column    int
	Layer, Op string
	Msg       string
}

func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.Column > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", e.File, e.Line, e.Column)
	case e.Line > 0:
		fmt.Fprintf(&b, "%s:%d: ", e.File, e.Line)
	case e.File != "":
		b.WriteString(e.File + ": ")
	}
	if e.Layer != "" {
		b.WriteString(e.Layer + ": ")
	}
	if e.Op != "" {
		b.WriteString(e.Op + ": ")
	}
	return b.String() + e.Msg
}
