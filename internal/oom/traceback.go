package oom

import (
	"regexp"
	"slices"
	"strings"
)

// Place is where in a job a traceback ends, as far as it tells. Autograd's nodes run
// without frames of Python: in the backward pass it tells no module, unless one is
// recomputed there.
type Place struct {
	Line  int    `json:"line"`  // of the log: the last frame
	Phase string `json:"phase"` // setup, forward, backward, clip or optimizer; "": not told
	// Module is the path of the module that was called last, as far as the calls name
	// it: * stands for one name, ** for any number of them. "": none was called.
	Module string `json:"module"`
	// Call is what the last frame calls, such as conv2d or @; "": not told.
	Call string `json:"call"`

	called bool // the model was called
}

// frame is one of a traceback.
type frame struct {
	line       int // of the log
	file, name string
	code, mark string // the first line of code, and how Python marks it
}

// maxTraceback is how many lines before a message are looked at for its traceback.
const maxTraceback = 1500

var (
	frameLine = regexp.MustCompile(`^\s*File "([^"]*)", line [0-9]+, in (\S+)\s*$`)
	markLine  = regexp.MustCompile(`^[\s~^]*[~^][\s~^]*$`)
	keyword   = regexp.MustCompile(`^\s*(?:(?:return|yield|await|assert|not|if|while|with)\s+)*`)
	callee    = regexp.MustCompile(`^\(?([A-Za-z_][\w.]*(?:\[[^\[\]]*\][\w.]*)*)\(`)
	ownCall   = regexp.MustCompile(`\bself\.[\w.]+(?:\[[^\[\]]*\])*\(`)
	subscript = regexp.MustCompile(`\[[^\[\]]*\]`)
)

// readPlace reads the traceback that ends before line at of a log, counted from 0, and
// begins at line from or later; nil if there is none.
func readPlace(lines []string, from, at, rankOf int) *Place {
	var own []frame // from the last to the first
	code, mark := "", ""
	for i := at - 1; i >= max(from, at-maxTraceback); i-- {
		if rankOf >= 0 { // ranks write at the same time
			if m := rank.FindStringSubmatch(lines[i]); m == nil || int(number(m[1])) != rankOf {
				continue
			}
		}
		text := unprefixed(lines[i])
		switch m := frameLine.FindStringSubmatch(text); {
		case strings.HasPrefix(strings.TrimSpace(text), "Traceback (most recent call last)"):
			slices.Reverse(own)
			return placeOf(own)
		case m != nil:
			own = append(own, frame{i + 1, strings.ReplaceAll(m[1], `\`, "/"), m[2], code, mark})
			code, mark = "", ""
		case markLine.MatchString(text):
			mark, code = text, ""
		case code != "": // what was thought to be the first line of code was a later one
			code, mark = text, ""
		default:
			code = text
		}
	}
	return nil
}

// unprefixed strips what launchers put before a line, and nothing more: marks stand
// below what they mark.
func unprefixed(line string) string {
	line = strings.TrimRight(line, "\r\n")
	for range 4 {
		m := strings.TrimRight(prefix.FindString(line), " \t")
		if m == "" {
			break
		}
		line = line[len(m):]
	}
	return line
}

// phases tells by the file or function of a frame what a job is doing.
var phases = []struct{ file, name, phase string }{
	{"torch/optim/", "", "optimizer"},
	{"bitsandbytes/optim/", "", "optimizer"},
	{"torch/nn/utils/clip_grad.py", "", "clip"},
	{"torch/autograd/", "_engine_run_backward", "backward"},
	{"torch/autograd/__init__.py", "backward", "backward"},
	{"torch/_tensor.py", "backward", "backward"},
	{"torch/nn/modules/module.py", "_apply", "setup"},
	{"torch/nn/modules/module.py", "convert", "setup"},
	{"transformers/modeling_utils.py", "from_pretrained", "setup"},
}

// moduleCalls are the functions of torch/nn/modules/module.py that call a module.
var moduleCalls = []string{"_wrapped_call_impl", "_call_impl", "__call__", "_slow_forward"}

// isModuleCall reports whether a frame is that of a module being called.
func (f *frame) isModuleCall() bool {
	return strings.HasSuffix(f.file, "torch/nn/modules/module.py") && slices.Contains(moduleCalls, f.name)
}

// placeOf follows the frames from the program's own to the last.
func placeOf(frames []frame) *Place {
	if len(frames) == 0 {
		return nil
	}
	p := &Place{Line: frames[len(frames)-1].line}
	var path []string
	for i := range frames {
		f := &frames[i]
		for _, ph := range phases {
			if strings.Contains(f.file, ph.file) && (ph.name == "" || ph.name == f.name) {
				if p.Phase != ph.phase && ph.phase == "backward" {
					path, p.called = []string{"**"}, false
				}
				p.Phase = ph.phase
				break
			}
		}
		if i+1 == len(frames) || !frames[i+1].isModuleCall() || f.isModuleCall() {
			continue
		}
		if p.Phase == "" || p.Phase == "optimizer" { // an optimizer's closure
			p.Phase = "forward"
		}
		if !p.called && p.Phase == "forward" {
			p.called = true // the model itself
			continue
		}
		p.called = true
		path = append(path, f.module()...)
	}
	if last := &frames[len(frames)-1]; !last.isModuleCall() {
		p.Call = last.function()
	}
	if p.called {
		p.Module = strings.Join(path, ".")
	}
	if last := &frames[len(frames)-1]; p.Phase == "" && (last.name == "forward" || strings.HasSuffix(last.file, "torch/nn/functional.py")) {
		p.Phase = "forward"
	}
	return p
}

// module is the path of the module that a frame calls, from that in which it is.
func (f *frame) module() []string {
	if strings.HasSuffix(f.file, "torch/nn/modules/container.py") { // Sequential
		return []string{"*"}
	}
	expr := f.callee()
	if expr == "" {
		if own := ownCall.FindAllString(f.code, -1); len(own) == 1 {
			expr = strings.TrimSuffix(own[0], "(")
		}
	}
	name, rest, dotted := strings.Cut(subscript.ReplaceAllString(expr, ".*"), ".")
	switch {
	case name == "super" || !dotted:
		return []string{"**"} // a local variable
	case name == "self" && (rest == "module" || rest == "_orig_mod"): // of DistributedDataParallel, of torch.compile
		return nil
	case name == "self":
		return strings.Split(rest, ".")
	}
	return append([]string{"**"}, strings.Split(rest, ".")...)
}

// function is the name of what a frame calls, or an operator's sign.
func (f *frame) function() string {
	name := f.callee()
	return name[strings.LastIndexByte(name, '.')+1:]
}

// callee is the expression that a frame calls, or the sign of an operator; "" if the
// line does not tell.
func (f *frame) callee() string {
	code := f.code
	if from, marked := strings.IndexAny(f.mark, "~^"), []rune(code); from >= 0 && from < len(marked) {
		marked = marked[from:]
		marks := f.mark[from:]
		switch at := strings.IndexByte(marks, '^'); {
		case at <= 0: // the call as a whole, or all of the line
		case at < len(marked) && marked[at] == '(':
			return strings.TrimSpace(string(marked[:at]))
		case at < len(marked):
			return strings.TrimSpace(string(marked[at:min(len(marked), strings.LastIndexByte(marks, '^')+1)]))
		}
		code = string(marked)
	}
	before, _, _ := strings.Cut(code, "(")
	code = code[strings.LastIndexByte(before, '=')+1:] // what an assignment assigns
	code = code[len(keyword.FindString(code)):]
	if m := callee.FindStringSubmatch(code); m != nil {
		return m[1]
	}
	return ""
}

// is reports whether the path of a module is what a pattern of a traceback names.
func is(pattern, path []string) bool {
	may := make([]bool, len(path)+1) // what was looked at of the pattern names so much of the path
	may[0] = true
	for _, part := range pattern {
		if part == "**" {
			for i := range path {
				may[i+1] = may[i+1] || may[i]
			}
			continue
		}
		for i := len(path); i > 0; i-- {
			may[i] = may[i-1] && (part == "*" || part == path[i-1])
		}
		may[0] = false
	}
	return may[len(path)]
}

// resolve finds a pattern of a traceback among the modules of a plan. Where none is
// called so, names before are left out: of a model that wraps the planned one, or
// that is wrapped by it. The answer holds the modules that may be meant.
func resolve(pattern string, modules []string) map[string]bool {
	const wrappers = 2
	split := func(s string) []string {
		if s == "" {
			return nil
		}
		return strings.Split(s, ".")
	}
	parts := split(pattern)
	for n := range wrappers + 1 {
		found := map[string]bool{}
		for _, m := range modules {
			path := split(m)
			if n < len(parts) && is(parts[n:], path) || n > 0 && n < len(path) && is(parts, path[n:]) {
				found[m] = true
			}
		}
		if len(found) > 0 || n < len(parts) && strings.HasPrefix(parts[n], "*") {
			return found
		}
	}
	return nil
}
