package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// BaselineVersion is the version of the JSON of Baseline.
const BaselineVersion = 1

// Baseline holds what specs needed when it was written. It is meant to be
// committed: entries are sorted, each on lines of its own.
type Baseline struct {
	Version int     `json:"memplan_baseline"`
	By      string  `json:"memplan"` // the version that wrote it
	Entries []Entry `json:"specs"`

	path  string
	text  []byte
	dir   string            // absolute path of the folder that specs are relative to
	index map[[2]string]int // of entries by spec and device, the first of each; nil: not made
}

// Entry holds the figures of a spec on a GPU. Spec is the path from the
// baseline's folder, with slashes.
type Entry struct {
	Spec   string `json:"spec"`
	Device string `json:"device"` // that was asked for; "": the spec's own
	GPU    string `json:"gpu"`
	Batch  int64  `json:"batch_size"`
	Result string `json:"result"`
	Figures
}

// ReadBaseline reads the JSON of a baseline that stands at path. The error names
// what is wrong.
func ReadBaseline(path string, text []byte) (*Baseline, error) {
	b := &Baseline{path: path, text: text}
	var head struct {
		Version *int `json:"memplan_baseline"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("%s: not valid JSON: %w", path, err)
	}
	switch {
	case head.Version == nil:
		return nil, fmt.Errorf("%s: not a baseline: the key memplan_baseline is missing (memplan check --write-baseline writes one)", path)
	case *head.Version != BaselineVersion:
		return nil, fmt.Errorf("%s: version %d of baselines is unknown; this memplan reads version %d", path, *head.Version, BaselineVersion)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(b); err != nil {
		return nil, fmt.Errorf("%s: not a baseline: %w", path, err)
	}
	for _, e := range b.Entries {
		if e.Spec == "" || e.AllocatedBytes < 0 || e.ReservedBytes < 0 || e.ExpectedBytes < 0 {
			return nil, fmt.Errorf("%s: the entry of spec %q is not one that memplan writes", path, e.Spec)
		}
	}
	b.index = map[[2]string]int{}
	for i, e := range b.Entries {
		if key := [2]string{e.Spec, e.Device}; !b.has(key) {
			b.index[key] = i
		}
	}
	return b, b.locate()
}

func (b *Baseline) has(key [2]string) bool { _, ok := b.index[key]; return ok }

func (b *Baseline) locate() error {
	abs, err := filepath.Abs(b.path)
	b.dir = filepath.Dir(abs)
	return err
}

// From says which folder specs are relative to, of a baseline that is no file
// there, as one of a commit.
func (b *Baseline) From(dir string) { b.dir = dir }

// name is how the baseline calls a spec.
func (b *Baseline) name(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		if _, err := os.Lstat(path); err == nil { // not preset:NAME or <stdin>
			if rel, err := filepath.Rel(b.dir, abs); err == nil {
				path = rel
			}
		}
	}
	return filepath.ToSlash(path)
}

func (b *Baseline) find(path, device string) *Entry {
	if i, ok := b.index[[2]string{b.name(path), device}]; ok {
		return &b.Entries[i]
	}
	return nil
}

// Baseline makes the baseline of a result, to be written at path. Specs that
// could not be read are not in it.
func (r *Result) Baseline(path, version string) (*Baseline, error) {
	b := &Baseline{Version: BaselineVersion, By: version, Entries: []Entry{}, path: path}
	if err := b.locate(); err != nil {
		return nil, err
	}
	for i := range r.Specs {
		if c := &r.Specs[i]; c.Peak != nil {
			b.Entries = append(b.Entries, Entry{b.name(c.Spec), c.Asked, c.GPU, c.Batch, c.Result, *c.Peak})
		}
	}
	sort.SliceStable(b.Entries, func(i, j int) bool { return b.Entries[i].Spec < b.Entries[j].Spec })
	return b, nil
}

// Text is the baseline as it is written.
func (b *Baseline) Text() ([]byte, error) {
	var out bytes.Buffer
	err := report.JSON(&out, b)
	return out.Bytes(), err
}

// maxGone is how many specs that are gone are told.
const maxGone = 100

// entryKey finds the specs that a baseline names, as they are written.
var entryKey = regexp.MustCompile(`"spec": ("(?:[^"\\]|\\.)*")`)

// entryPlaces tells where a baseline names each spec first.
func entryPlaces(text []byte) map[string]spec.Pos {
	out := map[string]spec.Pos{}
	line, from := 1, 0 // the line that begins at from
	for _, m := range entryKey.FindAllSubmatchIndex(text, -1) {
		var name string
		if json.Unmarshal(text[m[2]:m[3]], &name) != nil {
			continue
		}
		line += bytes.Count(text[from:m[0]], []byte("\n"))
		if i := bytes.LastIndexByte(text[from:m[0]], '\n'); i >= 0 {
			from += i + 1
		}
		if _, ok := out[name]; !ok {
			out[name] = spec.Pos{Line: line, Col: 1 + utf8.RuneCount(text[from:m[0]])}
		}
	}
	return out
}

// gone reports specs that are no more: those of a commit, and those that a
// baseline has figures of.
func (o *Options) gone() []Finding {
	var out []Finding
	r := baselineRule
	for _, g := range o.Gone {
		if severity := o.Config.policy(g.Spec).severity(r); severity != Off {
			msg := fmt.Sprintf("the spec was there at %s, and is gone", o.Against)
			if g.Unread != nil {
				msg = fmt.Sprintf("the file was there at %s, and is gone; it cannot be compared: %v", o.Against, g.Unread)
			}
			out = append(out, Finding{Rule: r.ID, Name: r.Name, Severity: severity, File: g.Spec, Line: 1, Column: 1, Message: msg})
		}
	}
	if o.Baseline == nil {
		return out
	}
	severity := o.Config.policy(o.Baseline.path).severity(r)
	if severity == Off {
		return out
	}
	said, checked := map[string]bool{}, map[string]bool{}
	for _, s := range o.Specs {
		checked[o.Baseline.name(s)] = true
	}
	places := entryPlaces(o.Baseline.text)
	for _, e := range o.Baseline.Entries {
		if said[e.Spec] || isPreset(e.Spec) {
			continue
		}
		said[e.Spec] = true
		path := filepath.Join(o.Baseline.dir, filepath.FromSlash(e.Spec))
		if _, err := os.Lstat(path); checked[e.Spec] || !os.IsNotExist(err) && !files.ThroughLink(o.Baseline.dir, e.Spec) && (!SpecName(path) || FileIsSpec(path)) {
			continue // what lies behind a link is not looked for
		}
		at, ok := places[e.Spec]
		if !ok {
			at = spec.Pos{Line: 1, Col: 1}
		}
		if len(out) == maxGone {
			out = append(out, Finding{Rule: r.ID, Name: r.Name, Severity: severity, File: o.Baseline.path, Line: at.Line, Column: at.Col,
				Message: "and of more specs that are gone"})
			break
		}
		out = append(out, Finding{Rule: r.ID, Name: r.Name, Severity: severity, File: o.Baseline.path, Line: at.Line, Column: at.Col,
			Message: fmt.Sprintf("the baseline has figures of %s, which is gone", e.Spec)})
	}
	return out
}

// compare holds the outcome against what the spec needed before.
func (u *unit) compare(o *Options, out *outcome) error {
	switch {
	case o.Baseline != nil:
		e := o.Baseline.find(u.Spec, u.Asked)
		if e == nil {
			u.add(baselineRule, u.at(baselineRule), "%s has no figures for this spec%s", o.Against, u.asked())
			return nil
		}
		was := ""
		if e.GPU != u.GPU {
			was = fmt.Sprintf(" on %s", e.GPU)
			u.add(baselineRule, u.place("device.gpu", "memplan"), "%s has figures of %s, and the spec is for %s now", o.Against, e.GPU, u.GPU)
		}
		if o.Baseline.By != o.Version {
			was += fmt.Sprintf(" by memplan %s", o.Baseline.By)
		}
		u.grew(&e.Figures, o.Against+was, nil)
	case o.Before != nil:
		before, err := o.Before(u.path, u.recipe.Text)
		if err != nil {
			return err
		}
		if before == nil {
			u.add(baselineRule, u.at(baselineRule), "the spec is new since %s", o.Against)
			return nil
		}
		if before.Path != u.recipe.Path {
			u.add(baselineRule, u.at(baselineRule), "the spec was %s at %s", before.Path, o.Against)
		}
		old := out
		if !bytes.Equal(before.Text, u.recipe.Text) || out.files {
			before.Options.GPUs = append(before.Options.GPUs, o.Config.GPUs...)
			before.Budget = u.budget
			if old, err = play(on(before, u.Asked)); errors.As(err, new(*limit.Error)) {
				u.unread(fmt.Errorf("as of %s: %w", o.Against, err))
				return nil
			} else if errors.As(err, new(*LackingError)) {
				return err
			} else if err != nil {
				u.add(baselineRule, u.at(baselineRule), "as of %s the spec cannot be read; there is nothing to compare with", o.Against)
				return nil
			}
		}
		if old.report.Device.Name != u.GPU {
			u.add(baselineRule, u.place("device.gpu", "memplan"), "the spec was for %s at %s, and is for %s now", old.report.Device.Name, o.Against, u.GPU)
		}
		u.grew(old.figures(), o.Against, u.changes(before))
	}
	return nil
}

// asked names the GPU in messages, if the spec is checked on several.
func (u *unit) asked() string {
	if u.Asked == "" {
		return ""
	}
	return " on " + u.Asked
}

// changes lists the values of the spec that differ from those before.
func (u *unit) changes(before *estimate.Recipe) []spec.Change {
	older, _ := spec.Parse(before.Path, before.Text, before.Options)
	if older == nil || u.recipe.Options.Label != "" {
		return nil
	}
	return u.text.ChangesSince(older)
}

// shownChanges is how many changes a message names.
const shownChanges = 3

// grew reports that a peak is greater than it was by more than is allowed, at
// the first of the changes if they are known.
func (u *unit) grew(before *Figures, against string, changes []spec.Change) {
	u.Before = before
	at, why := u.at(growth), ""
	for i, c := range changes {
		switch {
		case i == shownChanges:
			why += fmt.Sprintf(" and %d more", len(changes)-i)
		case i < shownChanges && c.Was != "" && c.Now != "":
			why += fmt.Sprintf(", %s %s (was %s)", c.Path, c.Now, c.Was)
		case i < shownChanges:
			why += ", " + c.Path
		}
	}
	if len(changes) > 0 {
		at, why = changes[0].At, "; changed: "+strings.TrimPrefix(why, ", ")
	}
	for _, p := range []struct {
		what     string
		was, now tensor.Bytes
	}{
		{"reserved memory", before.ReservedBytes, u.Peak.ReservedBytes},
		{"reserved memory with cuDNN's workspaces", before.ExpectedBytes, u.Peak.ExpectedBytes},
		{"allocated memory", before.AllocatedBytes, u.Peak.AllocatedBytes},
	} {
		if by := p.now - p.was; by > u.policy.growth.Of(p.was) {
			u.add(growth, at, "on %s: the peak of %s grew by %v (%s) since %s: %v, before %v; allowed is %v%s",
				u.GPU, p.what, by, percent(by, p.was), against, p.now, p.was, u.policy.growth, why)
			return
		}
	}
}
