package snapshot

import (
	"fmt"
	"path"
	"strings"
)

// Place is where in the program something was allocated.
type Place struct {
	// Lines are the frames of the program itself, the innermost first, as FILE:LINE FUNCTION. Without
	// one they are those of libraries.
	Lines []string `json:"lines"`
	// Call is the innermost function of a library that the program called, such as F.linear's; "" if there is none.
	Call string `json:"call,omitempty"`
}

// unknown is the place of what has no Python frames.
const unknown = "no Python frames: a backward pass, or the record began later"

// String is the innermost line and what it called.
func (p *Place) String() string {
	if len(p.Lines) == 0 {
		return unknown
	}
	if p.Call == "" {
		return p.Lines[0]
	}
	return p.Lines[0] + ": " + p.Call
}

// most is how many lines of a place are kept.
const most = 6

// place finds the lines of the program in a stack.
func (s *Stack) place() Place {
	var p, all Place
	if s == nil {
		return p
	}
	for i := range s.Frames {
		f := &s.Frames[i]
		if !isPython(f.File) {
			continue
		}
		line := f.String()
		if len(all.Lines) < most {
			all.Lines = append(all.Lines, line)
		}
		switch {
		case !isLibrary(f.File):
			if len(p.Lines) < most {
				p.Lines = append(p.Lines, line)
			}
		case len(p.Lines) == 0 && !wrappers[f.Name] && p.Call == "":
			p.Call = f.Name
		}
	}
	if len(p.Lines) == 0 {
		return all
	}
	return p
}

// Work is what the program was doing when something happened.
type Work struct {
	Operator string   // or the function of a library that the program called; "" if none
	Module   string   // its path in memplan's own snapshots, else the innermost line of the program
	Phase    string   // of memplan's own snapshots
	Step     int      // as Phase
	Lines    []string // of the program that led there, the innermost first
}

// Work reads the frames.
func (s *Stack) Work() Work {
	if s == nil {
		return Work{Module: unknown}
	}
	if f := s.Frames; len(f) == 2 && strings.HasPrefix(f[1].File, "<step ") {
		w := Work{Operator: f[0].Name, Module: strings.Trim(f[0].File, "<>"), Phase: f[1].Name}
		fmt.Sscanf(f[1].File, "<step %d>", &w.Step) //nolint:errcheck // 0 without a number
		return w
	}
	p := s.place()
	if len(p.Lines) == 0 {
		return Work{Module: unknown}
	}
	return Work{Operator: p.Call, Module: p.Lines[0], Lines: p.Lines[1:]}
}

// String is FILE:LINE FUNCTION, without the folders; or <MODULE> OPERATOR of memplan's own snapshots.
func (f *Frame) String() string {
	if f.Line == 0 {
		return f.File + " " + f.Name
	}
	return fmt.Sprintf("%s:%d %s", path.Base(strings.ReplaceAll(f.File, `\`, "/")), f.Line, f.Name)
}

// wrappers are functions through which every call of a module or optimizer goes.
var wrappers = map[string]bool{
	"_call_impl": true, "_wrapped_call_impl": true, "wrapper": true, "_use_grad": true, "decorate_context": true,
	"decorate_autocast": true, "inner": true, "<lambda>": true, "_apply": true,
}

// isPython reports whether a frame is of Python: frames of C++ have no file, or an object file.
func isPython(file string) bool {
	return strings.HasSuffix(file, ".py") || strings.HasPrefix(file, "<")
}

// isTorch reports whether a file is PyTorch's.
func isTorch(file string) bool {
	file = strings.ReplaceAll(file, `\`, "/")
	return strings.Contains(file, "/torch/") && isLibrary(file)
}

// isLibrary reports whether a file is installed and not the user's own.
func isLibrary(file string) bool {
	file = strings.ReplaceAll(file, `\`, "/")
	for _, part := range []string{"/site-packages/", "/dist-packages/", "/lib/python", "<frozen"} {
		if strings.Contains(file, part) {
			return true
		}
	}
	return false
}
