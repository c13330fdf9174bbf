package plan

import (
	"errors"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/trace"
)

// Mistake is one thing that is wrong with a spec or a trace.
type Mistake struct {
	File         string // the name of the job; "" of a trace
	Line, Column int    // from 1; 0: the place is not known
	Setting      string // what was set, in place of a line: "--set train.batch_size=x"
	Message      string
	Hint         string // what is allowed, or what to do; may be ""
}

// Mistakes lists what an error says is wrong with a spec, one that cannot be played,
// or a trace; nil: the error is about something else.
func Mistakes(err error) []Mistake {
	var (
		wrong  *spec.Errors
		played *program.Error
		read   *trace.ReadError
	)
	switch {
	case errors.As(err, &wrong):
		var all []Mistake
		for _, d := range wrong.Sorted() {
			m := Mistake{File: wrong.File, Line: d.Line, Column: d.Col, Message: d.Msg, Hint: d.Hint}
			if d.Line < 0 && -d.Line <= len(wrong.Overrides) {
				m.Line, m.Column, m.Setting = 0, 0, wrong.Overrides[-d.Line-1]
			}
			all = append(all, m)
		}
		return all
	case errors.As(err, &played):
		return []Mistake{{File: played.File, Line: played.Line, Message: err.Error()}}
	case errors.As(err, &read):
		return []Mistake{{Line: read.Line, Column: read.Column, Message: read.Message}}
	}
	return nil
}
