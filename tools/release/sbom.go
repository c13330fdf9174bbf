package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// The part of CycloneDX 1.5 that says what a binary of Go is made of.
type (
	bom struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Serial     string      `json:"serialNumber"`
		Version    int         `json:"version"`
		Metadata   bomMetadata `json:"metadata"`
		Components []component `json:"components"`
	}
	bomMetadata struct {
		Component component `json:"component"`
	}
	component struct {
		Type       string        `json:"type"`
		Ref        string        `json:"bom-ref"`
		Name       string        `json:"name"`
		Version    string        `json:"version"`
		Hashes     []bomHash     `json:"hashes,omitempty"`
		Licences   []bomLicence  `json:"licenses,omitempty"`
		PURL       string        `json:"purl"`
		Properties []bomProperty `json:"properties,omitempty"`
	}
	bomHash struct {
		Alg     string `json:"alg"`
		Content string `json:"content"`
	}
	bomLicence struct {
		Expression string `json:"expression"`
	}
	bomProperty struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

// writeSBOM writes which modules are in a binary, as Go's linker recorded it.
func writeSBOM(binary, path, version string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	return writeJSON(path, sbomOf(info, sum, version))
}

// sbomOf is the list for a binary with that SHA-256. Nothing in it depends on when
// or where it is made.
func sbomOf(info *debug.BuildInfo, sum [sha256.Size]byte, version string) bom {
	app := module(info.Main.Path, version, "")
	app.Type = "application"
	app.Hashes = []bomHash{{"SHA-256", hex.EncodeToString(sum[:])}}
	app.Licences = []bomLicence{{licence}}
	for _, s := range info.Settings {
		app.Properties = append(app.Properties, bomProperty{"go:build:" + s.Key, s.Value})
	}
	id := sum // a UUID of version 8: of the binary
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	b := bom{
		Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: bomMetadata{app},
		Serial:     fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16]),
		Components: []component{module("std", strings.TrimPrefix(info.GoVersion, "go"), "")},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, module(m.Path, m.Version, m.Sum))
	}
	return b
}

// module is a Go module; sum is its line of go.sum: the hash of the list of the
// hashes of its files.
func module(path, version, sum string) component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	c := component{Type: "library", Ref: purl, Name: path, Version: version, PURL: purl}
	if h, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(h) == sha256.Size {
		c.Hashes = []bomHash{{"SHA-256", hex.EncodeToString(h)}}
	}
	return c
}
