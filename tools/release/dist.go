package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	source      = "https://github.com/memplan/memplan"
	description = "Plans the GPU memory of PyTorch training jobs"
	licence     = "Apache-2.0"
	notices     = "THIRD_PARTY_LICENSES"
)

// A target is a system that a release has a binary for, and what others call it.
type target struct {
	os, arch string // Go
	runner   string // GitHub: RUNNER_OS-RUNNER_ARCH
	npm      string // Node: process.platform-process.arch
	wheel    string // the platform tag of a Python wheel
}

// targets are those of .goreleaser.yaml. Binaries are static, so that they run with
// every libc of Linux; macOS is the oldest that Go builds for.
var targets = []target{
	{"linux", "amd64", "Linux-X64", "linux-x64", "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"},
	{"linux", "arm64", "Linux-ARM64", "linux-arm64", "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64"},
	{"darwin", "amd64", "macOS-X64", "darwin-x64", "macosx_12_0_x86_64"},
	{"darwin", "arm64", "macOS-ARM64", "darwin-arm64", "macosx_12_0_arm64"},
	{"windows", "amd64", "Windows-X64", "win32-x64", "win_amd64"},
	{"windows", "arm64", "Windows-ARM64", "win32-arm64", "win_arm64"},
}

// exe is the name of the binary.
func (t target) exe() string {
	if t.os == "windows" {
		return "memplan.exe"
	}
	return "memplan"
}

// archive is the name of the archive of a version.
func (t target) archive(version string) string {
	suffix := ".tar.gz"
	if t.os == "windows" {
		suffix = ".zip"
	}
	return t.stem(version) + suffix
}

// sbom is the name of the list of what is in the binary.
func (t target) sbom(version string) string { return t.stem(version) + ".cdx.json" }

func (t target) stem(version string) string {
	return fmt.Sprintf("memplan_%s_%s_%s", version, t.os, t.arch)
}

// A dist is a folder that goreleaser wrote.
type dist struct {
	dir      string
	version  string // without the v of the tag
	python   string // the same, as Python writes it
	commit   string
	date     time.Time // of the commit
	binaries map[target]string
}

func openDist(dir string) (*dist, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var meta struct{ Version, Commit string }
	if err := readJSON(filepath.Join(dir, "metadata.json"), &meta); err != nil {
		return nil, err
	}
	d := &dist{dir: dir, version: meta.Version, commit: meta.Commit, binaries: map[target]string{}}
	if d.python, err = pythonVersion(meta.Version); err != nil {
		return nil, err
	}
	out, err := exec.Command("git", "show", "-s", "--format=%ct", meta.Commit).Output()
	if err != nil {
		return nil, fmt.Errorf("the date of commit %s: %w", meta.Commit, err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return nil, err
	}
	d.date = time.Unix(seconds, 0).UTC()
	var artifacts []struct{ Path, Goos, Goarch, Type string }
	if err := readJSON(filepath.Join(dir, "artifacts.json"), &artifacts); err != nil {
		return nil, err
	}
	for _, a := range artifacts {
		for _, t := range targets {
			if a.Type == "Binary" && a.Goos == t.os && a.Goarch == t.arch {
				d.binaries[t] = filepath.Join(dir, "..", a.Path) // from the root of the repository
			}
		}
	}
	if len(d.binaries) != len(targets) {
		return nil, fmt.Errorf("%s has %d binaries, not %d", dir, len(d.binaries), len(targets))
	}
	return d, nil
}

// legal are the files that go with every binary.
func (d *dist) legal() (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, path := range map[string]string{"LICENSE": "LICENSE", notices: filepath.Join("bin", notices)} {
		text, err := os.ReadFile(filepath.Join(d.dir, "..", path))
		if err != nil {
			return nil, err
		}
		files[name] = text
	}
	return files, nil
}

var semver = regexp.MustCompile(`^(\d+\.\d+\.\d+)(?:-(alpha|beta|rc|dev)\.(\d+))?$`)

// pythonVersion writes a version in the way of PEP 440.
func pythonVersion(version string) (string, error) {
	m := semver.FindStringSubmatch(version)
	if m == nil {
		return "", fmt.Errorf("version %q: a release is called 1.2.3, 1.2.3-alpha.1, 1.2.3-beta.1 or 1.2.3-rc.1", version)
	}
	short := map[string]string{"": "", "alpha": "a", "beta": "b", "rc": "rc", "dev": ".dev"}[m[2]]
	return m[1] + short + m[3], nil
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writeJSON writes a file for people and programs.
func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
