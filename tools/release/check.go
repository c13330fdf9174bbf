package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// lack is what a check fails with that needs what this machine has not.
type lack string

func (what lack) Error() string { return "not checked here: needs " + string(what) }

// check holds everything in the folder against what a release promises.
func check(dir string) error {
	d, err := openDist(dir)
	if err != nil {
		return err
	}
	failed := 0
	for _, c := range []struct {
		what string
		run  func(*dist) (string, error)
	}{
		{"binaries", checkBinaries},
		{"archives", checkArchives},
		{"checksums", checkSums},
		{"SBOM", checkSBOMs},
		{"this machine's binary", checkHost},
		{"OCI image", checkImage},
		{"Homebrew", checkCask},
		{"npm", checkNPM},
		{"pip", checkPip},
	} {
		said, err := c.run(d)
		switch {
		case errors.As(err, new(lack)):
			fmt.Printf("--    %s: %v\n", c.what, err)
		case err != nil:
			failed++
			fmt.Printf("FAIL  %s: %v\n", c.what, err)
		default:
			fmt.Printf("ok    %s: %s\n", c.what, said)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d checks failed", failed)
	}
	return nil
}

// checkBinaries reads what Go's linker recorded, and that Linux's need no libc.
func checkBinaries(d *dist) (string, error) {
	for _, t := range targets {
		info, err := buildinfo.ReadFile(d.binaries[t])
		if err != nil {
			return "", err
		}
		got := map[string]string{}
		for _, s := range info.Settings {
			got[s.Key] = s.Value
		}
		for key, want := range map[string]string{"GOOS": t.os, "GOARCH": t.arch, "CGO_ENABLED": "0", "-trimpath": "true", "vcs.revision": d.commit, "vcs.modified": "false"} {
			if got[key] != want {
				return "", fmt.Errorf("%s: %s is %q, not %q", d.binaries[t], key, got[key], want)
			}
		}
		if t.os != "linux" {
			continue
		}
		f, err := elf.Open(d.binaries[t])
		if err != nil {
			return "", err
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				err = fmt.Errorf("%s is not static", d.binaries[t])
			}
		}
		f.Close()
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d of commit %.12s, without cgo; Linux's are static", len(targets), d.commit), nil
}

// checkArchives holds what is in each archive against the binary and the sources.
func checkArchives(d *dist) (string, error) {
	want := []string{"LICENSE", notices, "README.md", "CHANGELOG.md"}
	pages, err := filepath.Glob(filepath.Join(d.dir, "..", "docs", "man", "*.1"))
	if err != nil {
		return "", err
	}
	for _, p := range pages {
		want = append(want, "man/"+filepath.Base(p))
	}
	slices.Sort(want)
	for _, t := range targets {
		path := filepath.Join(d.dir, t.archive(d.version))
		files, err := unpack(path)
		if err != nil {
			return "", err
		}
		binary, err := os.ReadFile(d.binaries[t])
		if err != nil {
			return "", err
		}
		if f := files[t.exe()]; !bytes.Equal(f.text, binary) || f.mode != 0o755 {
			return "", fmt.Errorf("%s: %s is not the binary, or no program: mode %v", path, t.exe(), f.mode)
		}
		delete(files, t.exe())
		if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
			return "", fmt.Errorf("%s has %q, not %q", path, got, want)
		}
	}
	return fmt.Sprintf("%d, of %d files each", len(targets), len(want)+1), nil
}

type packed struct {
	mode fs.FileMode
	text []byte
}

// unpack reads an archive.
func unpack(path string) (map[string]packed, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(path, ".tar.gz") {
		if text, err = gunzip(text); err != nil {
			return nil, err
		}
		return untar(text)
	}
	z, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return nil, err
	}
	files := map[string]packed{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		files[f.Name] = packed{f.Mode().Perm(), text}
	}
	return files, nil
}

func gunzip(text []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func untar(text []byte) (map[string]packed, error) {
	files := map[string]packed{}
	for r := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		files[h.Name] = packed{h.FileInfo().Mode().Perm(), text}
	}
}

// checkSums holds checksums.txt against the files: all that is downloaded is in it.
func checkSums(d *dist) (string, error) {
	text, err := os.ReadFile(filepath.Join(d.dir, "checksums.txt"))
	if err != nil {
		return "", err
	}
	var want []string
	for _, t := range targets {
		for _, name := range []string{t.archive(d.version), t.sbom(d.version)} {
			content, err := os.ReadFile(filepath.Join(d.dir, name))
			if err != nil {
				return "", err
			}
			want = append(want, strings.TrimPrefix(digest(content), "sha256:")+"  "+name)
		}
	}
	got := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return "", fmt.Errorf("checksums.txt has\n%s\nand should have\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return fmt.Sprintf("%d files", len(want)), nil
}

// checkSBOMs holds each list against its binary.
func checkSBOMs(d *dist) (string, error) {
	parts := 0
	for _, t := range targets {
		var b bom
		if err := readJSON(filepath.Join(d.dir, t.sbom(d.version)), &b); err != nil {
			return "", err
		}
		binary, err := os.ReadFile(d.binaries[t])
		if err != nil {
			return "", err
		}
		app := b.Metadata.Component
		if want := strings.TrimPrefix(digest(binary), "sha256:"); app.Version != "v"+d.version || len(app.Hashes) != 1 || app.Hashes[0].Content != want {
			return "", fmt.Errorf("%s is of another binary: %+v", t.sbom(d.version), app)
		}
		info, err := buildinfo.ReadFile(d.binaries[t])
		if err != nil {
			return "", err
		}
		if parts = len(b.Components); parts != len(info.Deps)+1 {
			return "", fmt.Errorf("%s lists %d components; %d are linked", t.sbom(d.version), parts, len(info.Deps)+1)
		}
	}
	return fmt.Sprintf("%d, of %d components each", len(targets), parts), nil
}

// host is the target of this machine.
func host() (target, error) {
	for _, t := range targets {
		if t.os == runtime.GOOS && t.arch == runtime.GOARCH {
			return t, nil
		}
	}
	return target{}, lack(fmt.Sprintf("a system for which there are releases, not %s/%s", runtime.GOOS, runtime.GOARCH))
}

func checkHost(d *dist) (string, error) {
	t, err := host()
	if err != nil {
		return "", err
	}
	return d.try(func(args ...string) *exec.Cmd { return exec.Command(d.binaries[t], args...) })
}

// try runs memplan as a user would: its version, a job, a mistake.
func (d *dist) try(memplan func(args ...string) *exec.Cmd) (string, error) {
	out, err := memplan("version").CombinedOutput()
	said, _, _ := strings.Cut(string(out), "\n")
	if err != nil || !strings.HasPrefix(said, "memplan v"+d.version+" (") {
		return "", fmt.Errorf("memplan version, which should be v%s: %w\n%s", d.version, err, out)
	}
	if out, err := memplan("estimate", "--quick").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "FITS  gpt2") {
		return "", fmt.Errorf("memplan estimate --quick: %w\n%s", err, out)
	}
	c := memplan("estimate", "--no-such-flag")
	if out, _ := c.CombinedOutput(); c.ProcessState == nil || c.ProcessState.ExitCode() != 2 {
		return "", fmt.Errorf("a wrong flag should exit with 2: %v\n%s", c.ProcessState, out)
	}
	return said, nil
}

// checkImage reads the layout from its top, holds every blob against its hash, and
// runs the image's entry point as its user in nothing but its layer.
func checkImage(d *dist) (string, error) {
	l := layout{filepath.Join(d.dir, "image")}
	var top index
	if err := readJSON(filepath.Join(l.dir, "index.json"), &top); err != nil {
		return "", err
	}
	if len(top.Manifests) != 1 || top.Manifests[0].MediaType != mediaIndex {
		return "", fmt.Errorf("index.json: %+v", top)
	}
	var all index
	if _, err := l.open(top.Manifests[0], &all); err != nil {
		return "", err
	}
	ran := "not run: needs Linux and root, for chroot"
	found := 0
	for _, t := range targets {
		i := slices.IndexFunc(all.Manifests, func(m descriptor) bool { return *m.Platform == platform{t.arch, t.os} })
		if i < 0 {
			if t.os == "linux" {
				return "", fmt.Errorf("no image for %s/%s", t.os, t.arch)
			}
			continue
		}
		found++
		var m manifest
		var c imageConfig
		if _, err := l.open(all.Manifests[i], &m); err != nil {
			return "", err
		}
		if _, err := l.open(m.Config, &c); err != nil {
			return "", err
		}
		if !slices.Equal(c.Config.Entrypoint, []string{"/memplan"}) || c.Config.User != imageUser || c.Config.WorkingDir != imageWork || c.OS != t.os || c.Arch != t.arch || len(m.Layers) != 1 {
			return "", fmt.Errorf("the image for %s: %+v", t.arch, c)
		}
		layer, err := l.open(m.Layers[0], nil)
		if err != nil {
			return "", err
		}
		if layer, err = gunzip(layer); err != nil {
			return "", err
		}
		if !slices.Equal(c.RootFS.Diffs, []string{digest(layer)}) {
			return "", fmt.Errorf("the image for %s says %v of its layer, which is %s unpacked", t.arch, c.RootFS.Diffs, digest(layer))
		}
		files, err := untar(layer)
		if err != nil {
			return "", err
		}
		binary, err := os.ReadFile(d.binaries[t])
		if err != nil {
			return "", err
		}
		if !bytes.Equal(files["memplan"].text, binary) {
			return "", fmt.Errorf("the image for %s has another binary than the archive", t.arch)
		}
		if here, err := host(); err == nil && here == t && os.Getuid() == 0 {
			if ran, err = d.runLayer(files, c.Config); err != nil {
				return "", err
			}
		}
	}
	if found != len(all.Manifests) {
		return "", fmt.Errorf("%d images, %d of which are known", len(all.Manifests), found)
	}
	return fmt.Sprintf("%d platforms; %s", found, ran), nil
}

// open reads a blob, decodes it into v if that is not nil, and holds it against its hash.
func (l layout) open(d descriptor, v any) ([]byte, error) {
	text, err := os.ReadFile(l.path(d))
	if err != nil {
		return nil, err
	}
	if digest(text) != d.Digest || len(text) != d.Size {
		return nil, fmt.Errorf("%s has another content", d.Digest)
	}
	if v == nil {
		return text, nil
	}
	return text, json.Unmarshal(text, v)
}

// runLayer runs the image's entry point with the files of its layer as the whole
// file system.
func (d *dist) runLayer(files map[string]packed, c imageRun) (string, error) {
	root, err := os.MkdirTemp("", "memplan-image-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(root)
	if err := os.Chmod(root, 0o755); err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path, f := filepath.Join(root, name), files[name]
		if strings.HasSuffix(name, "/") {
			err = os.Mkdir(path, f.mode)
		} else {
			err = os.WriteFile(path, f.text, f.mode)
		}
		if err != nil {
			return "", err
		}
	}
	var user, group uint32
	if _, err := fmt.Sscanf(c.User, "%d:%d", &user, &group); err != nil {
		return "", err
	}
	return d.try(func(args ...string) *exec.Cmd {
		return &exec.Cmd{
			Path: c.Entrypoint[0], Args: append(slices.Clone(c.Entrypoint), args...), Dir: c.WorkingDir, Env: []string{},
			SysProcAttr: &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: group}},
		}
	})
}

// caskFile finds the files of a cask.
var caskFile = regexp.MustCompile(`sha256 "([0-9a-f]{64})"\s+url "([^"]*)"`)

// checkCask holds the files that Homebrew is told to download against the archives.
func checkCask(d *dist) (string, error) {
	path := filepath.Join(d.dir, "homebrew", "Casks", "memplan.rb")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	got := map[string]string{}
	for _, m := range caskFile.FindAllStringSubmatch(string(text), -1) {
		got[filepath.Base(strings.ReplaceAll(m[2], "#{version}", d.version))] = m[1]
		if !strings.HasPrefix(m[2], source+"/releases/download/") {
			return "", fmt.Errorf("%s: %s is no file of a release", path, m[2])
		}
	}
	want := map[string]string{}
	for _, t := range targets {
		if t.os == "windows" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(d.dir, t.archive(d.version)))
		if err != nil {
			return "", err
		}
		want[t.archive(d.version)] = strings.TrimPrefix(digest(content), "sha256:")
	}
	if !maps.Equal(got, want) {
		return "", fmt.Errorf("%s has %v, not %v", path, got, want)
	}
	if _, err := exec.LookPath("ruby"); err != nil {
		return fmt.Sprintf("%d files; the cask itself is not parsed: needs Ruby", len(got)), nil
	}
	if out, err := exec.Command("ruby", "-c", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", path, err, out)
	}
	return fmt.Sprintf("%d files; Ruby reads the cask", len(got)), nil
}

// checkNPM packs the packages and installs those of this machine, without a network.
func checkNPM(d *dist) (string, error) {
	here, err := host()
	if err != nil {
		return "", err
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return "", lack("npm")
	}
	dir, err := os.MkdirTemp("", "memplan-npm-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	install := func(folder string, packages ...string) (string, error) {
		to := filepath.Join(dir, folder)
		args := append([]string{"install", "--offline", "--no-audit", "--no-fund", "--cache", filepath.Join(dir, "cache"), "--prefix", to}, packages...)
		return filepath.Join(to, "node_modules", ".bin", "memplan"), command(dir, "npm", args...)
	}
	pack := []string{"pack", "--silent", "--cache", filepath.Join(dir, "cache"), filepath.Join(d.dir, "npm", "memplan")}
	for _, t := range targets {
		pack = append(pack, filepath.Join(d.dir, "npm", t.npm))
	}
	if err := command(dir, "npm", pack...); err != nil {
		return "", err
	}
	launcher := filepath.Join(dir, "memplan-"+d.version+".tgz")
	binary := filepath.Join(dir, "memplan-"+here.npm+"-"+d.version+".tgz")
	program, err := install("both", launcher, binary)
	if err != nil {
		return "", err
	}
	said, err := d.try(func(args ...string) *exec.Cmd { return exec.Command(program, args...) })
	if err != nil {
		return "", err
	}
	if program, err = install("alone", "--omit=optional", launcher); err != nil {
		return "", err
	}
	c := exec.Command(program, "version")
	if out, _ := c.CombinedOutput(); c.ProcessState == nil || c.ProcessState.ExitCode() != 3 || !strings.Contains(string(out), "the package "+scope+here.npm+" is not installed") {
		return "", fmt.Errorf("without the binary's package: %v\n%s", c.ProcessState, out)
	}
	return fmt.Sprintf("%d packages; %s", len(targets)+1, said), nil
}

// checkPip installs the wheel that pip finds to be this machine's.
func checkPip(d *dist) (string, error) {
	if err := exec.Command("python3", "-c", "import venv, ensurepip").Run(); err != nil {
		return "", lack("python3 with venv")
	}
	dir, err := os.MkdirTemp("", "memplan-pip-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := command(dir, "python3", "-m", "venv", "venv"); err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "venv", "bin")
	if err := command(dir, filepath.Join(bin, "pip"), "install", "--no-index", "--find-links", filepath.Join(d.dir, "pip"), "memplan=="+d.python); err != nil {
		return "", err
	}
	said, err := d.try(func(args ...string) *exec.Cmd { return exec.Command(filepath.Join(bin, "memplan"), args...) })
	if err != nil {
		return "", err
	}
	if err := command(dir, filepath.Join(bin, "pip"), "uninstall", "--yes", "memplan"); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(bin, "memplan")); err == nil {
		return "", fmt.Errorf("pip uninstall leaves the binary behind")
	}
	return fmt.Sprintf("%d wheels; %s", len(targets), said), nil
}

// command runs a program in a folder; what it prints is told if it fails.
func command(dir, name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// same holds two builds of a commit against each other, byte by byte. What
// goreleaser tells of itself has times and paths.
func same(a, b string) error {
	first, err := hashes(a)
	if err != nil {
		return err
	}
	second, err := hashes(b)
	if err != nil {
		return err
	}
	if len(first) == 0 {
		return fmt.Errorf("%s is empty", a)
	}
	differ := 0
	for _, name := range slices.Sorted(maps.Keys(first)) {
		if first[name] != second[name] {
			differ++
			fmt.Println("differs:", name)
		}
	}
	if differ > 0 || len(first) != len(second) {
		return fmt.Errorf("%s has %d files, %s %d; %d are not the same", a, len(first), b, len(second), differ)
	}
	fmt.Printf("ok    reproducible: %d files are the same in two builds\n", len(first))
	return nil
}

func hashes(dir string) (map[string]string, error) {
	sums := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || slices.Contains([]string{"artifacts.json", "metadata.json", "config.yaml"}, name) {
			return err
		}
		text, err := os.ReadFile(path)
		sums[name] = digest(text)
		return err
	})
	return sums, err
}
