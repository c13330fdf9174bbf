package gate

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// ConfigFile is the text of a configuration.
type ConfigFile struct {
	Path string // how messages call it; "": there is none
	Text []byte
	Read func(name string) ([]byte, error) // a file that it names
}

// Named is how messages call a file that the configuration names.
func (f *ConfigFile) Named(name string) string {
	if filepath.IsAbs(name) || f.Path == "" {
		return name
	}
	ref, path, ofCommit := strings.Cut(f.Path, ":")
	if !ofCommit {
		return filepath.Join(filepath.Dir(f.Path), name)
	}
	return ref + ":" + filepath.Join(filepath.Dir(path), name)
}

// ConfigChange is how a configuration differs from that of a commit.
type ConfigChange struct {
	File  string // that changed
	What  string
	Since string // the commit
	New   bool   // the commit has none
	Used  bool   // what the commit has is what counts
}

// CompareConfig says how a configuration differs from what it was; nil if it
// does not. Err is why it cannot be read, if it cannot.
func CompareConfig(was, now *ConfigFile, err error) *ConfigChange {
	switch {
	case err != nil:
		return &ConfigChange{File: ConfigName, What: fmt.Sprintf("it cannot be read: %v", err)}
	case was.Path == "" && now.Path == "":
		return nil
	case was.Path == "":
		return &ConfigChange{File: now.Path, New: true}
	case now.Path == "":
		_, path, _ := strings.Cut(was.Path, ":")
		return &ConfigChange{File: path, What: "it is gone"}
	}
	var what []string
	if at := was.Path[strings.Index(was.Path, ":")+1:]; filepath.Clean(at) != filepath.Clean(now.Path) {
		what = append(what, "it was "+at)
	}
	a, b := spec.ReadDocument(was.Path, was.Text), spec.ReadDocument(now.Path, now.Text)
	if !bytes.Equal(was.Text, now.Text) {
		keys := changedKeys(a, b)
		if len(keys) > 0 {
			what = append(what, "changed: "+strings.Join(keys, ", "))
		}
	}
	for _, key := range []string{"device_table", "baseline"} {
		v, same := a.Root.Get(key), b.Root.Get(key)
		if v == nil || same == nil || v.Kind != spec.Str || v.Str != same.Str {
			continue // said already
		}
		name := v.Str
		x, errX := was.Read(name)
		y, errY := now.Read(name)
		if !bytes.Equal(x, y) || errors.Is(errX, fs.ErrNotExist) != errors.Is(errY, fs.ErrNotExist) {
			what = append(what, fmt.Sprintf("%s, its %s, is another", name, key))
		}
	}
	if len(what) == 0 {
		return nil
	}
	return &ConfigChange{File: now.Path, What: strings.Join(what, "; ")}
}

// changedKeys lists the keys of two documents that differ, those at the top.
func changedKeys(a, b *spec.Document) []string {
	if a.Root == nil || b.Root == nil {
		return []string{"all of it"}
	}
	var out []string
	for _, c := range slices.Concat(b.ChangesSince(a), a.ChangesSince(b)) {
		key, _, _ := strings.Cut(c.Path, ".")
		if !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out
}

// finding is that of the rule; ok is false if it is off.
func (c *ConfigChange) finding(conf *Config) (f Finding, ok bool) {
	r := configuration
	severity := conf.policy(c.File).severity(r)
	differs, used := "the configuration differs from that of "+c.Since+": "+c.What, "this one is used, as --config says"
	switch {
	case c.Used && c.New:
		used = "it is not used before it is there (--config takes it)"
	case c.Used:
		used = "that of " + c.Since + " is used"
	}
	if c.New {
		differs = "the configuration is new since " + c.Since
	}
	return Finding{Rule: r.ID, Name: r.Name, Severity: severity, File: c.File, Line: 1, Column: 1, Message: differs + "; " + used}, severity != Off
}
