package exporttorch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// A spec gives names to models, blocks, layers, values and more, and a script has
// names of its own. What a spec calls something that Python, PyTorch or the script
// has already gets another name: one underscore at its end, or as many as it
// needs. A script is printed twice for that: the first text has marks where names
// of the spec go, and shows which names are the script's own.

// nameKey is what has a name: in which space names must differ from each other,
// what of the job it is, and the name that it has there.
type nameKey struct {
	space space
	of    any // a function; a class or a kind of thing where several may have the same name
	base  string
}

// space is where a name must be the only one.
type space uint8

const (
	global space = iota // of the module
	local               // of a function; of: the function, nil for those of the step
	member              // parameters, buffers and submodules: one name for all modules, as paths have it
	method              // functions of classes
	kept                // attributes of the context of an autograd function
)

// mark encloses the number of a name in the first text.
const mark = "\x01"

// name prints the name of something.
func (s *script) name(k nameKey) string {
	if s.final != nil {
		if n := s.final[k]; n != "" {
			return n
		}
		return k.base // of a module of torch.nn, in a path
	}
	n, ok := s.number[k]
	if !ok {
		n = len(s.keys)
		s.keys = append(s.keys, k)
		s.number[k] = n
	}
	return fmt.Sprint(mark, n, mark)
}

func (s *script) modelName(name string) string     { return s.name(nameKey{global, "model", name}) }
func (s *script) optimizerName(name string) string { return s.name(nameKey{global, "optimizer", name}) }
func (s *script) schedulerName(optimizer string) string {
	return s.name(nameKey{global, "scheduler", strings.Replace(optimizer, "optimizer", "scheduler", 1)})
}

// lossesName is the variable of an evaluation that holds the losses of its batches.
func (s *script) lossesName() string { return s.name(nameKey{global, "evaluation", "losses"}) }

func (s *script) criterion(path string) string { return s.name(nameKey{global, "criterion", path}) }
func (s *script) keptName(name string) string  { return s.name(nameKey{global, "kept", name}) }
func (s *script) className(c *program.Class) string {
	return s.name(nameKey{global, c, c.Name})
}

// functionName is the name of a function of the spec that the script itself calls.
func (s *script) functionName(f *program.Func) string { return s.name(nameKey{global, f, f.Name}) }

// stepName is the name of a local variable of the step or an evaluation.
func (s *script) stepName(name string) string { return s.name(nameKey{local, nil, name}) }

// variable is the name of a local variable of a function.
func (s *script) variable(f *program.Func, slot int) string {
	if f.Kind == program.StepFunc {
		return s.stepName(f.Slots[slot])
	}
	return s.name(nameKey{local, f, f.Slots[slot]})
}

// variables are the names of some slots.
func (s *script) variables(f *program.Func, from, to int) []string {
	out := make([]string, 0, to-from)
	for i := from; i < to; i++ {
		out = append(out, s.variable(f, i))
	}
	return out
}

// local is the name of a local variable of the function being printed.
func (p *printer) local(slot int) string { return p.variable(p.fn, slot) }

// path is a path of modules and parameters.
func (s *script) path(path string) string {
	parts := strings.Split(path, ".")
	for i, p := range parts {
		if strings.Trim(p, "0123456789") != "" {
			parts[i] = s.name(nameKey{member, nil, p})
		}
	}
	return strings.Join(parts, ".")
}

// extent is the text of a function.
type extent struct{ from, to int }

// scope prints the text of a function; nil: the step's.
func (s *script) scope(f *program.Func, text func()) {
	from := s.b.Len()
	text()
	var of any
	if f != nil {
		of = f
	}
	s.extents[of] = append(s.extents[of], extent{from, s.b.Len()})
}

// resolve chooses the names, given the first text.
func (s *script) resolve() map[nameKey]string {
	text := s.b.String()
	final := map[nameKey]string{}
	words := map[string]bool{} // of the top level
	for n := range outside(text) {
		words[n] = true
	}
	reserved := func(sets ...map[string]bool) map[string]bool {
		out := map[string]bool{}
		for _, set := range append(sets, keywords) {
			for n, ok := range set {
				if ok {
					out[n] = true
				}
			}
		}
		return out
	}
	s.choose(final, global, nil, reserved(words, builtins))
	s.choose(final, member, nil, reserved(program.ModuleAttributes, shardedAttributes))
	for _, k := range s.keys {
		if k.space == method { // beside the members of its class
			own := map[string]bool{}
			for _, m := range s.members[k.of.(*program.Class)] {
				own[final[nameKey{member, nil, m}]] = true
			}
			for _, o := range s.keys {
				if o.space == method && o.of == k.of {
					own[final[o]] = true
				}
			}
			final[k] = pick(k.base, reserved(program.ModuleAttributes, shardedAttributes, contextAttributes, own))
		}
	}
	s.choose(final, kept, nil, reserved(contextAttributes))
	all := tokens(text)
	for _, k := range s.keys {
		if _, done := final[k]; done || k.space != local {
			continue
		}
		used := map[string]bool{"super": true} // Python looks for it by its name
		for _, t := range all {
			if !t.isName() || t.attr || t.keyword || !slices.ContainsFunc(s.extents[k.of], func(e extent) bool { return e.from <= t.at && t.at < e.to }) {
				continue
			}
			if !t.user {
				used[t.text] = true
			} else if u := s.keys[index(t.text)]; u.space == global {
				used[final[u]] = true
			}
		}
		if k.of == nil { // the body of the loop, if the step is flat
			for n := range words {
				used[n] = true
			}
			for n := range builtins {
				used[n] = used[n] || s.job.Flat || s.job.Before != nil
			}
			for o, n := range final {
				used[n] = used[n] || o.space == global
			}
		}
		s.choose(final, local, k.of, reserved(used))
	}
	s.inOrder(final)
	return final
}

// index is the number in a mark.
func index(text string) (n int) {
	fmt.Sscan(strings.Trim(text, mark), &n)
	return n
}

// choose gives names to what is in a space: first to all that keep theirs.
func (s *script) choose(final map[nameKey]string, in space, of any, reserved map[string]bool) {
	for _, keep := range []bool{true, false} {
		for _, k := range s.keys {
			if _, done := final[k]; done || k.space != in || in == local && k.of != of {
				continue
			}
			if n := pick(k.base, reserved); !keep || n == k.base {
				final[k], reserved[n] = n, true
			}
		}
	}
}

// pick is a name, or the next that is not reserved. What begins with two
// underscores means something else inside of a class.
func pick(name string, reserved map[string]bool) string {
	if rest := strings.TrimLeft(name, "_"); rest != "" && strings.HasPrefix(name, "__") {
		name = "_" + rest
	}
	for reserved[name] {
		name += "_"
	}
	return name
}

// inOrder keeps the variables that a closure of the step takes in their order:
// they die in the order of their names.
func (s *script) inOrder(final map[nameKey]string) {
	f := s.job.Step
	names := func(prefix string) []string {
		out := make([]string, len(f.Cells))
		for i, slot := range f.Cells {
			out[i] = prefix + final[nameKey{local, nil, f.Slots[slot]}]
			if prefix != "" {
				out[i] = prefix + f.Slots[slot]
			}
		}
		return out
	}
	if slices.IsSorted(names("")) {
		return
	}
	taken := map[string]bool{}
	for _, n := range final {
		taken[n] = true
	}
	for _, t := range tokens(s.b.String()) {
		taken[t.text] = true
	}
	prefix := "v_"
	for slices.ContainsFunc(names(prefix), func(n string) bool { return taken[n] }) {
		prefix += "_"
	}
	for i, n := range names(prefix) {
		final[nameKey{local, nil, f.Slots[f.Cells[i]]}] = n
	}
}

// renamed lists the members whose names are others in the script, in the order
// of their first use: both names.
func (s *script) renamed() [][2]string {
	var out [][2]string
	for _, k := range s.keys {
		if n := s.final[k]; k.space == member && s.final != nil && n != k.base {
			out = append(out, [2]string{n, k.base})
		}
	}
	return out
}

// patterns prints patterns of paths in some models. Where members have other
// names in the script, a pattern that would find other things gives way to the
// paths that it means.
func (s *script) patterns(list program.Patterns, models ...*program.Model) string {
	if len(s.renamed()) == 0 {
		return quoted(list)
	}
	paths := []string{""}
	for _, m := range models {
		paths = append(paths, m.Root.ModulePaths()...)
		m.Root.Walk(func(path string, c *program.Class) {
			for _, p := range slices.Concat(c.Params, c.Buffers) {
				paths = append(paths, program.Join(path, p.Name))
			}
		})
	}
	var out program.Patterns
	for _, q := range list {
		one := program.Patterns{q}
		if !slices.ContainsFunc(paths, func(p string) bool { return one.Fits(p) != one.Fits(s.path(p)) }) {
			out = append(out, q)
			continue
		}
		for _, p := range paths {
			if one.Fits(p) && !slices.Contains(out, s.path(p)) {
				out = append(out, s.path(p))
			}
		}
	}
	return quoted(out)
}
