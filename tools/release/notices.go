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

// further are licences that lie in folders of a module: of fonts, and that which is
// taken of two.
var further = map[string][]string{
	"github.com/go-analyze/charts": {"chartdraw/drawing/fonts/OFL.txt"},
	"github.com/golang/freetype":   {"licenses/ftl.txt"},
}

// freetype is what the FreeType License asks to be said.
const freetype = "Portions of this software are copyright (c) The FreeType Project (www.freetype.org). All rights reserved.\n"

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
	text.WriteString("What is linked into memplan, and its licences.\n" + freetype)
	for _, m := range modules {
		entries, err := os.ReadDir(folders[m])
		if err != nil {
			return err
		}
		var names []string
		for _, e := range entries {
			if !e.IsDir() && noticeName.MatchString(e.Name()) {
				names = append(names, e.Name())
			}
		}
		if len(names) == 0 {
			return fmt.Errorf("%s has no licence", m)
		}
		name, _, _ := strings.Cut(m, " ")
		for _, n := range append(names, further[name]...) {
			notice, err := os.ReadFile(filepath.Join(folders[m], n))
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), m, n, bytes.TrimSpace(notice))
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}
