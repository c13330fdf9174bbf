package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/memplan/memplan/internal/needs"
)

// read reads a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTargets holds what says for which systems a release has binaries, and how
// their files are called, against the table of targets.
func TestTargets(t *testing.T) {
	var c struct {
		Builds []struct {
			Main                     string
			Env, Goos, Goarch, Flags []string
			LDFlags                  []string
			ModTime                  string `yaml:"mod_timestamp"`
		}
		Archives []struct {
			Name      string `yaml:"name_template"`
			Formats   []string
			Overrides []struct {
				Goos    string
				Formats []string
			} `yaml:"format_overrides"`
		}
		SBOMs    []struct{ Documents []string }
		Checksum struct {
			Name string `yaml:"name_template"`
		}
		Release struct {
			GitHub struct{ Owner, Name string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".goreleaser.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Builds) != 1 || len(c.Archives) != 1 || len(c.Archives[0].Overrides) != 1 || len(c.SBOMs) != 1 {
		t.Fatalf("%+v", c)
	}
	b, a := c.Builds[0], c.Archives[0]
	var built []string
	for _, system := range b.Goos {
		for _, arch := range b.Goarch {
			built = append(built, system+"/"+arch)
		}
	}
	for _, flag := range []string{"-trimpath", "-buildvcs=true"} {
		if !slices.Contains(b.Flags, flag) {
			t.Errorf("binaries are built without %s", flag)
		}
	}
	// The linker says nothing of a variable that is not there.
	if want := "-X github.com/memplan/memplan/internal/cli.version=v{{ .Version }}"; len(b.LDFlags) != 1 || !strings.HasSuffix(b.LDFlags[0], want) ||
		!strings.Contains(read(t, "internal/cli/version.go"), "\nvar version = \"\"\n") {
		t.Errorf("ldflags %q do not set the version", b.LDFlags)
	}
	if !slices.Equal(b.Env, []string{"CGO_ENABLED=0"}) || b.ModTime != "{{ .CommitTimestamp }}" || c.Checksum.Name != "checksums.txt" {
		t.Errorf("%+v, %+v", b, c.Checksum)
	}
	if got := "https://github.com/" + c.Release.GitHub.Owner + "/" + c.Release.GitHub.Name; got != source {
		t.Errorf("releases go to %s, not %s", got, source)
	}
	action, docs := read(t, "action.yml"), read(t, "docs/release.md")
	for _, x := range targets {
		if i := slices.Index(built, x.os+"/"+x.arch); i >= 0 {
			built = slices.Delete(built, i, i+1)
		} else {
			t.Errorf(".goreleaser.yaml builds nothing for %s/%s", x.os, x.arch)
		}
		name := strings.NewReplacer("{{ .Version }}", "1.2.3", "{{ .Os }}", x.os, "{{ .Arch }}", x.arch)
		format := a.Formats[0]
		if o := a.Overrides[0]; o.Goos == x.os {
			format = o.Formats[0]
		}
		if got := name.Replace(a.Name) + "." + format; got != x.archive("1.2.3") {
			t.Errorf("goreleaser's archive is %s, not %s", got, x.archive("1.2.3"))
		}
		if got := name.Replace(c.SBOMs[0].Documents[0]); got != x.sbom("1.2.3") {
			t.Errorf("goreleaser's SBOM is %s, not %s", got, x.sbom("1.2.3"))
		}
		if want := "  " + x.runner + ") file=" + x.archive("${version}") + " ;;\n"; !strings.Contains(action, want) {
			t.Errorf("action.yml has no line %s", want)
		}
		if want := "| " + x.os + "/" + x.arch + " | `" + x.archive("VERSION") + "` | `" + scope + x.npm + "` | `" + x.wheel + "` |\n"; !strings.Contains(docs, want) {
			t.Errorf("docs/release.md has no row %s", want)
		}
	}
	if len(built) > 0 {
		t.Errorf(".goreleaser.yaml builds for %v, too", built)
	}
	if got := strings.Count(action, ") file=memplan_"); got != len(targets) {
		t.Errorf("action.yml has %d archives", got)
	}
}

// TestDownload runs the step of action.yml that downloads a release, with a curl
// that reads a folder.
func TestDownload(t *testing.T) {
	needs.Tool(t, "bash", "tar", "awk") // as the action does
	var action struct {
		Runs struct {
			Steps []struct {
				ID, If, Uses, Run string
				Env               map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "action.yml")), &action); err != nil {
		t.Fatal(err)
	}
	steps := action.Runs.Steps
	if steps[0].ID != "release" || steps[1].If != "steps.release.outputs.found != 'true'" || steps[2].If != steps[1].If || steps[3].If != "" {
		t.Fatalf("%+v", steps)
	}
	if want := map[string]string{"ACTION_REF": "${{ github.action_ref }}", "ACTION_REPOSITORY": "${{ github.action_repository }}"}; len(steps[0].Env) != len(want) ||
		steps[0].Env["ACTION_REF"] != want["ACTION_REF"] || steps[0].Env["ACTION_REPOSITORY"] != want["ACTION_REPOSITORY"] {
		t.Errorf("%v", steps[0].Env)
	}

	const program = "#!/bin/sh\necho memplan of the release\n"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	for _, name := range []string{"LICENSE", "memplan"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(program))}); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, program)
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	linux := packed.Bytes()
	sum := func(content []byte, name string) string {
		return strings.TrimPrefix(digest(content), "sha256:") + "  " + name + "\n"
	}
	const name = "memplan_1.2.3_linux_amd64.tar.gz"
	other := sum([]byte("other"), "memplan_1.2.3_linux_arm64.tar.gz")
	for _, c := range []struct {
		about, ref, runner string
		files              map[string]string
		code               int
		found              bool
		says               string
	}{
		{"a tag", "v1.2.3", "Linux X64", map[string]string{name: string(linux), "checksums.txt": other + sum(linux, name)}, 0, true, "memplan of the release"},
		{"another tag", "v1.2.3-rc.1", "Linux X64", nil, 0, false, "no checksums.txt of v1.2.3-rc.1"},
		{"no release of the tag", "v1.2.3", "Linux X64", nil, 0, false, "::notice::no checksums.txt of v1.2.3 to be had: memplan is built"},
		{"no file", "v1.2.3", "Linux X64", map[string]string{"checksums.txt": sum(linux, name)}, 0, false, "no " + name + " of v1.2.3"},
		{"another file", "v1.2.3", "Linux X64", map[string]string{name: string(linux[1:]), "checksums.txt": sum(linux, name)}, 1, false, "::error::" + name},
		{"no checksum", "v1.2.3", "Linux X64", map[string]string{name: string(linux), "checksums.txt": other}, 1, false, "::error::" + name},
		{"another system", "v1.2.3", "Linux ARM", nil, 0, false, ""},
		{"a commit", strings.Repeat("1", 40), "Linux X64", nil, 0, false, ""},
		{"a branch", "main", "Linux X64", nil, 0, false, ""},
		{"a branch like a tag", "v1.2.3/../x", "Linux X64", nil, 0, false, ""},
		{"a tag of other things", "v1", "Linux X64", nil, 0, false, ""},
		{"the action's own repository", "", "Linux X64", nil, 0, false, ""},
	} {
		t.Run(c.about, func(t *testing.T) {
			temp, bin, store := t.TempDir(), t.TempDir(), t.TempDir()
			curl := "#!/bin/sh\nfor a; do case $p in --output) o=$a;; esac; p=$a; done\ncase $p in \"$STORE_URL\"*) cp \"$STORE/${p#\"$STORE_URL\"}\" \"$o\" 2>/dev/null || exit 22;; *) exit 6;; esac\n"
			if err := os.WriteFile(filepath.Join(bin, "curl"), []byte(curl), 0o755); err != nil {
				t.Fatal(err)
			}
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(store, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			system, arch, _ := strings.Cut(c.runner, " ")
			outputs := filepath.Join(temp, "outputs")
			run := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps[0].Run)
			run.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "STORE="+store, "STORE_URL=https://github.com/some/fork/releases/download/"+c.ref+"/",
				"ACTION_REF="+c.ref, "ACTION_REPOSITORY=some/fork", "RUNNER_OS="+system, "RUNNER_ARCH="+arch, "RUNNER_TEMP="+temp, "GITHUB_OUTPUT="+outputs)
			out, err := run.CombinedOutput()
			if run.ProcessState == nil || run.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), c.says) {
				t.Errorf("%v: %v, want %d\n%s", err, run.ProcessState, c.code, out)
			}
			said, _ := os.ReadFile(outputs)
			if got := string(said) == "found=true\n"; got != c.found {
				t.Errorf("outputs: %q\n%s", said, out)
			}
			installed, _ := os.ReadFile(filepath.Join(temp, "memplan"))
			if got := string(installed) == program; got != c.found {
				t.Errorf("installed: %q", installed)
			}
		})
	}
}

// standIn is a program that answers as memplan does where a release is tried.
const standIn = `package main
import ("fmt"; "os")
func main() {
	switch fmt.Sprint(os.Args[1:]) {
	case "[version]": fmt.Println("memplan v1.2.3-rc.4 (a stand-in)")
	case "[estimate --quick]": fmt.Println("FITS  gpt2-124m")
	default: os.Exit(2)
	}
}
`

// fakeDist is a folder as goreleaser leaves it, as far as wrappers read it; binaries
// are a stand-in of this machine's, and texts.
func fakeDist(t *testing.T) *dist {
	t.Helper()
	root := t.TempDir()
	d := &dist{dir: filepath.Join(root, "dist"), version: "1.2.3-rc.4", python: "1.2.3rc4", commit: strings.Repeat("1", 40),
		date: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC), binaries: map[target]string{}}
	write := func(path, text string) string {
		path = filepath.Join(root, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("LICENSE", "the licence\n")
	write("bin/"+notices, "more licences\n")
	for _, x := range targets {
		d.binaries[x] = write("dist/"+x.npm, "the binary of "+x.npm)
	}
	if here, err := host(); err == nil {
		if err := os.Remove(d.binaries[here]); err != nil {
			t.Fatal(err)
		}
		c := exec.Command("go", "build", "-o", d.binaries[here], write("main.go", standIn))
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=") // the race detector's would need cgo
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return d
}

// TestWrappers makes the packages and the image around a stand-in, and installs and
// runs them; twice they are the same.
func TestWrappers(t *testing.T) {
	d := fakeDist(t)
	var sums [2]map[string]string
	for i := range sums {
		for name, write := range map[string]func(*dist) error{"npm": writeNPM, "pip": writeWheels, "image": writeImage} {
			if err := write(d); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		var err error
		if sums[i], err = hashes(d.dir); err != nil {
			t.Fatal(err)
		}
	}
	for name, sum := range sums[0] {
		if sums[1][name] != sum {
			t.Errorf("%s is not the same twice", name)
		}
	}
	for name, check := range map[string]func(*dist) (string, error){"npm": checkNPM, "pip": checkPip, "image": checkImage} {
		t.Run(name, func(t *testing.T) {
			needs.Time(t, needs.Alone)
			said, err := check(d)
			if what := lack(""); errors.As(err, &what) {
				needs.Lacks(t, string(what))
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Log(said)
		})
	}
}

// TestWheel holds a wheel against its own record.
func TestWheel(t *testing.T) {
	x := targets[4]
	text, err := wheel("1.2.3", x, []byte("binary"), map[string][]byte{"LICENSE": []byte("a"), notices: []byte("b")}, time.Unix(1e9, 0).UTC())
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	want := []string{"memplan-1.2.3.data/scripts/memplan.exe", "memplan-1.2.3.dist-info/licenses/LICENSE", "memplan-1.2.3.dist-info/licenses/" + notices,
		"memplan-1.2.3.dist-info/METADATA", "memplan-1.2.3.dist-info/WHEEL", "memplan-1.2.3.dist-info/RECORD"}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	r, err := z.Open("memplan-1.2.3.dist-info/RECORD")
	if err != nil {
		t.Fatal(err)
	}
	var record bytes.Buffer
	if _, err := record.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	if got := record.String(); !strings.HasPrefix(got, want[0]+",sha256=mjpF0BUxog6JrGrhCwsL6wSSrNchajaKoGLRpf7K-c0,6\n") || strings.Count(got, "\n") != len(want) || !strings.HasSuffix(got, want[5]+",,\n") {
		t.Errorf("%s", got)
	}
}

func TestPythonVersion(t *testing.T) {
	for version, want := range map[string]string{
		"1.2.3": "1.2.3", "0.1.0-alpha.1": "0.1.0a1", "0.1.0-beta.12": "0.1.0b12", "0.1.0-rc.2": "0.1.0rc2", "0.0.1-dev.1795336135": "0.0.1.dev1795336135",
		"v1.2.3": "", "1.2": "", "1.2.3-rc1": "", "1.2.3-next": "", "1.2.3+x": "",
	} {
		got, err := pythonVersion(version)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", version, got, err, want)
		}
	}
}

func TestSBOM(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: "github.com/memplan/memplan"},
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v1.0.0+incompatible", Sum: "h1:" + "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="},
			{Path: "example.org/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/c", Version: "v2.0.0"}},
		},
		Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}},
	}
	text, err := json.Marshal(sbomOf(info, sha256.Sum256([]byte("binary")), "v1.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"serialNumber":"urn:uuid:9a3a45d0-1531-820e-8`,
		`"name":"github.com/memplan/memplan","version":"v1.2.3","hashes":[{"alg":"SHA-256","content":"9a3a45d0`,
		`"name":"go:build:GOOS","value":"linux"`,
		`"purl":"pkg:golang/std@1.26.8"`,
		`"version":"v1.0.0+incompatible","hashes":[{"alg":"SHA-256","content":"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"}],"purl":"pkg:golang/example.org/a@v1.0.0%2Bincompatible"`,
		`"purl":"pkg:golang/example.org/c@v2.0.0"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func TestChanges(t *testing.T) {
	const text = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.2.0 (2026-02-03)\n\n- two\n\n### More\n\n- three\n\n## 0.1.0\n\n- one\n"
	for version, want := range map[string]string{"0.2.0": "- two\n\n### More\n\n- three\n", "0.1.0": "- one\n", "0.2": ""} {
		got, err := changes(text, version)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", version, got, err)
		}
	}
}

// named finds versions of memplan in what users read and copy.
var named = regexp.MustCompile(`(?i)(?:memplan(?:/memplan)?(?:/cmd/memplan)?(?:@|:|==|_| )|MEMPLAN_VERSION[:=] *|rev: |releases/(?:tag|download)/|--branch )(v?\d+(?:\.\d+)*[-.\w]*|latest)\b`)

// TestVersions: texts name no version of memplan that was not released; the
// CHANGELOG has a section for each that was, and the README says when there is none.
func TestVersions(t *testing.T) {
	released := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^## (\d\S*)`).FindAllStringSubmatch(read(t, "CHANGELOG.md"), -1) {
		released[m[1]] = true
	}
	files := []string{"README.md", "SECURITY.md", "action.yml", "ci/gitlab.yml", ".pre-commit-hooks.yaml"}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		files = append(files, "docs/"+filepath.Base(p))
	}
	for _, f := range files {
		for _, m := range named.FindAllStringSubmatch(read(t, f), -1) {
			if !released[strings.TrimPrefix(m[1], "v")] {
				t.Errorf("%s: %q is no release", f, m[0])
			}
		}
	}
	for text, want := range map[string]string{
		"go install github.com/memplan/memplan/cmd/memplan@latest": "latest", "uses: memplan/memplan@v1": "v1", "    rev: v1.0.0": "v1.0.0",
		"MEMPLAN_VERSION: latest": "latest", "pip install memplan==0.1.0": "0.1.0", "ghcr.io/memplan/memplan:0.1.0": "0.1.0", "memplan_0.1.0_linux": "0.1.0_linux",
		"memplan: 1": "", "memplan_check: 1": "", "memplan/memplan@main": "", "rev: main": "",
	} {
		got := ""
		if m := named.FindStringSubmatch(text); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
	if none := strings.Contains(read(t, "README.md"), "No release has been published yet"); none != (len(released) == 0) {
		t.Errorf("the README says that there is no release: %v; the CHANGELOG has %d", none, len(released))
	}
	needs.Clone(t)
	out, err := exec.Command("git", "tag", "--list", "v*").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range strings.Fields(string(out)) {
		if !released[strings.TrimPrefix(tag, "v")] {
			t.Errorf("the CHANGELOG has no section for %s", tag)
		}
	}
}
