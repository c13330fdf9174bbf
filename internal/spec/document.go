package spec

import "strings"

// Document is a YAML file that is no spec, such as a configuration. It is read
// by the rules of specs, and its mistakes are reported as theirs.
type Document struct {
	Root *Value // nil if the file cannot be read
	Errs *Errors
}

// ReadDocument reads a YAML file; mistakes are in Errs.
func ReadDocument(path string, text []byte) *Document {
	errs := &Errors{File: path, Lines: strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")}
	return &Document{Root: readYAML(text, errs), Errs: errs}
}

// ReadPlain reads a YAML or JSON file of another program, which has no expressions
// and may have any keys. Overrides are written as KEY=VALUE.
func ReadPlain(path string, text []byte, overrides []string) *Document {
	errs := &Errors{File: path, Lines: strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")}
	d := &Document{Root: (&reader{errs: errs, plain: true}).read(text), Errs: errs}
	if d.Root == nil || d.Root.Kind != Map {
		return d
	}
	for _, o := range overrides {
		key, value, _ := strings.Cut(o, "=")
		override(d.Root, key, value, errs.override("--set "+o), errs)
	}
	return d
}

// Section fills the struct that out points to from a mapping of the document, by
// the tags that Spec describes. What names the mapping in messages.
func (d *Document) Section(v *Value, out any, what string) {
	(&decoder{errs: d.Errs, env: &paramEnv{}}).section(v, out, what)
}

// ChangesSince lists what d has and older has not, or has otherwise, as
// Spec.ChangesSince does. Both must have been read.
func (d *Document) ChangesSince(older *Document) []Change { return changes(d.Root, older.Root) }

// Place returns where the file has the key of that path, keys joined by dots: a
// scalar's value, else the key. It is false if the file has not, or if the
// command line says it instead.
func (s *Spec) Place(path string) (Span, bool) {
	v := s.root
	var at Span
	for _, k := range strings.Split(path, ".") {
		next := v.Get(k)
		if next == nil {
			return Span{}, false
		}
		for _, p := range v.Pairs {
			if p.Key.Str == k {
				at = p.Key.Span
			}
		}
		v = next
	}
	if v.Kind != List && v.Kind != Map && v.Kind != Null {
		at = v.Span
	}
	return at, at.Line > 0
}
