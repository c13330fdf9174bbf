package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// noticeName finds the files in which a module says under which terms it may be
// handed on.
var noticeName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// writeNotices writes the licences of all modules that are linked into a binary of
// a release, and of Go's own library.
func writeNotices(path string) error {
	folders := map[string]string{} // of modules
	for _, t := range targets {
		c := exec.Command("go", "list", "-deps", "-f", `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}	{{.Dir}}{{end}}{{end}}`, "./cmd/memplan")
		c.Env = append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch, "CGO_ENABLED=0")
		c.Stderr = os.Stderr
		out, err := c.Output()
		if err != nil {
			return fmt.Errorf("go list for %s: %w", t.os, err)
		}
		for line := range strings.Lines(string(out)) {
			if module, dir, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
				folders[module] = dir
			}
		}
	}
	out, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return err
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	folders["std "+strings.TrimPrefix(version, "go")] = root
	modules := make([]string, 0, len(folders))
	for m := range folders {
		modules = append(modules, m)
	}
	slices.Sort(modules)
	var text bytes.Buffer
	text.WriteString("What is linked into memplan, and its licences.\n")
	for _, m := range modules {
		entries, err := os.ReadDir(folders[m])
		if err != nil {
			return err
		}
		found := false
		for _, e := range entries {
			if e.IsDir() || !noticeName.MatchString(e.Name()) {
				continue
			}
			notice, err := os.ReadFile(filepath.Join(folders[m], e.Name()))
			if err != nil {
				return err
			}
			found = true
			fmt.Fprintf(&text, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), m, e.Name(), bytes.TrimSpace(notice))
		}
		if !found {
			return fmt.Errorf("%s has no licence", m)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}
