package main

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
)

//go:embed memplan.js
var launcher []byte

// scope is npm's name of the packages that hold a binary each. npm installs the one
// of this machine: the others' os and cpu do not fit.
const scope = "@memplan/"

type npmPackage struct {
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Description  string            `json:"description"`
	Licence      string            `json:"license"`
	Repository   npmRepository     `json:"repository"`
	Bin          map[string]string `json:"bin,omitempty"`
	OS           []string          `json:"os,omitempty"`
	CPU          []string          `json:"cpu,omitempty"`
	Engines      map[string]string `json:"engines,omitempty"`
	Optional     map[string]string `json:"optionalDependencies,omitempty"`
	Files        []string          `json:"files"`
	PublishSetup map[string]string `json:"publishConfig"`
}

type npmRepository struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

// writeNPM writes the folders of npm's packages, dist/npm/NAME.
func writeNPM(d *dist) error {
	legal, err := d.legal()
	if err != nil {
		return err
	}
	main := d.npm("memplan")
	main.Bin = map[string]string{"memplan": "bin/memplan.js"}
	main.Engines = map[string]string{"node": ">=18"}
	main.Optional = map[string]string{}
	for _, t := range targets {
		p := d.npm(scope + t.npm)
		p.Description += ": the binary for " + t.npm
		system, cpu, _ := strings.Cut(t.npm, "-")
		p.OS, p.CPU = []string{system}, []string{cpu}
		main.Optional[p.Name] = p.Version // this very version
		binary, err := os.ReadFile(d.binaries[t])
		if err != nil {
			return err
		}
		if err := d.writePackage(t.npm, p, "bin/"+t.exe(), binary, legal); err != nil {
			return err
		}
	}
	return d.writePackage("memplan", main, "bin/memplan.js", launcher, legal)
}

func (d *dist) npm(name string) npmPackage {
	return npmPackage{
		Name: name, Version: d.version, Description: description, Licence: licence,
		Repository:   npmRepository{"git", "git+" + source + ".git"},
		Files:        []string{"bin", notices},
		PublishSetup: map[string]string{"access": "public"},
	}
}

func (d *dist) writePackage(folder string, p npmPackage, name string, program []byte, legal map[string][]byte) error {
	dir := filepath.Join(d.dir, "npm", folder)
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), program, 0o755); err != nil {
		return err
	}
	for name, text := range legal {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	readme := "# " + p.Name + "\n\n" + p.Description + ": see " + source + ".\n"
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte(readme), 0o644); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, "package.json"), p)
}
