package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// writeWheels writes a wheel for each target, dist/pip/NAME.whl. The binary is a
// script of the wheel, which pip puts on the path of the environment.
func writeWheels(d *dist) error {
	legal, err := d.legal()
	if err != nil {
		return err
	}
	dir := filepath.Join(d.dir, "pip")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, t := range targets {
		binary, err := os.ReadFile(d.binaries[t])
		if err != nil {
			return err
		}
		w, err := wheel(d.python, t, binary, legal, d.date)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, wheelName(d.python, t)), w, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func wheelName(version string, t target) string {
	return "memplan-" + version + "-py3-none-" + t.wheel + ".whl"
}

func wheel(version string, t target, binary []byte, legal map[string][]byte, date time.Time) ([]byte, error) {
	var tags strings.Builder
	for _, platform := range strings.Split(t.wheel, ".") {
		fmt.Fprintf(&tags, "Tag: py3-none-%s\n", platform)
	}
	info := "memplan-" + version + ".dist-info/"
	metadata := fmt.Sprintf("Metadata-Version: 2.4\nName: memplan\nVersion: %s\nSummary: %s\nProject-URL: Source, %s\n"+
		"License-Expression: %s\nLicense-File: LICENSE\nLicense-File: %s\nRequires-Python: >=3.7\nDescription-Content-Type: text/markdown\n\n%s: see %s.\n",
		version, description, source, licence, notices, description, source)
	files := []struct {
		name string
		mode fs.FileMode
		text []byte
	}{
		{"memplan-" + version + ".data/scripts/" + t.exe(), 0o755, binary},
		{info + "licenses/LICENSE", 0o644, legal["LICENSE"]},
		{info + "licenses/" + notices, 0o644, legal[notices]},
		{info + "METADATA", 0o644, []byte(metadata)},
		{info + "WHEEL", 0o644, []byte("Wheel-Version: 1.0\nGenerator: memplan\nRoot-Is-Purelib: false\n" + tags.String())},
		{info + "RECORD", 0o644, nil},
	}
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	var record strings.Builder
	for _, f := range files {
		if f.text == nil { // the last
			fmt.Fprintf(&record, "%s,,\n", f.name)
			f.text = []byte(record.String())
		} else {
			sum := sha256.Sum256(f.text)
			fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.text))
		}
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: date}
		h.SetMode(f.mode)
		to, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(f.text); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
