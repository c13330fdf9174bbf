package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/gate"
	"github.com/memplan/memplan/internal/needs"
)

// owned is a project with a gate, and how to call git and memplan in it.
func owned(t *testing.T, files map[string]string) (dir string, git func(args ...string), memplan func(args ...string) (string, int)) {
	t.Helper()
	dir, _ = project(t)
	bin := t.TempDir()
	asMemplan(t, bin)
	git = func(args ...string) {
		t.Helper()
		c := exec.Command("git", append([]string{"-c", "user.name=nobody", "-c", "user.email=nobody@example.org"}, args...)...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	memplan = func(args ...string) (string, int) {
		t.Helper()
		c := exec.Command(filepath.Join(bin, "memplan"), args...)
		c.Dir = dir
		out, _ := c.CombinedOutput()
		return string(out), c.ProcessState.ExitCode()
	}
	writeFiles(t, dir, files)
	git("add", "-A")
	git("commit", "-q", "-m", "base")
	git("update-ref", "refs/remotes/origin/main", "HEAD")
	return dir, git, memplan
}

func symlink(t *testing.T, dir, name, to string) {
	t.Helper()
	needs.Symlink(t, to, filepath.Join(dir, name))
}

const (
	smallSpec = "memplan: 1\nmodel: {preset: mlp}\ntrain: {batch_size: 2}\ndevice: {gpu: t4}\n"
	hugeSpec  = "memplan: 1\nmodel: {preset: mlp}\ntrain: {batch_size: 9000000}\ndevice: {gpu: t4}\n"
)

// A file whose name is that of a commit's configuration does not pass for it.
func TestConfigOfCommitIsNoFile(t *testing.T) {
	dir, _, memplan := owned(t, map[string]string{"specs/a.yaml": smallSpec, ".memplan.yaml": "max_growth: 1%\n"})
	writeFiles(t, dir, map[string]string{"specs/a.yaml": hugeSpec, "origin/main:.memplan.yaml": "fail_on: never\nrules: {MP001: off}\n"})
	if out, code := memplan("check", "--config", "origin/main:.memplan.yaml", "specs/a.yaml"); code != exitGate {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// Links of the working tree do not choose among the files of the commit.
func TestConfigOfCommitFollowsNoLink(t *testing.T) {
	gpu := "- {name: lab, memory: %s, arch: 8.9, sms: 60}\n"
	dir, git, memplan := owned(t, map[string]string{"specs/a.yaml": strings.Replace(smallSpec, "t4", "lab", 1), ".memplan.yaml": "device_table: ci/gpus.yaml\n",
		"ci/gpus.yaml": strings.Replace(gpu, "%s", "2GiB", 1), "examples/gpus.yaml": strings.Replace(gpu, "%s", "900GiB", 1)})
	git("rm", "-rq", "ci")
	symlink(t, dir, "ci", "examples")
	writeFiles(t, dir, map[string]string{"specs/a.yaml": strings.Replace(hugeSpec, "t4", "lab", 1)})
	for _, args := range [][]string{{"--config", "origin/main:.memplan.yaml"}, {"--against-git", "origin/main", "--rule", "MP003=off"}} {
		out, code := memplan(append([]string{"check", "specs/a.yaml"}, args...)...)
		if code != exitGate || !strings.Contains(out, "its device_table, is another") {
			t.Errorf("%v: exit code %d\n%s", args, code, out)
		}
	}
}

// A configuration that is no more is told, and that of the commit counts.
func TestConfigIsGone(t *testing.T) {
	dir, git, memplan := owned(t, map[string]string{"specs/a.yaml": smallSpec, ".memplan.yaml": "headroom: 5%\n"})
	git("rm", "-q", ".memplan.yaml")
	writeFiles(t, dir, map[string]string{"specs/a.yaml": hugeSpec})
	for _, args := range [][]string{{"--config", "origin/main:.memplan.yaml"}, {"--against-git", "origin/main"}} {
		out, code := memplan(append([]string{"check", "specs/a.yaml"}, args...)...)
		if code != exitGate || !strings.Contains(out, ".memplan.yaml:1:1: warning: ") || !strings.Contains(out, "it is gone") {
			t.Errorf("%v: exit code %d\n%s", args, code, out)
		}
	}
}

// What a link to a folder hides from the check is gone, and so is what is no spec.
func TestSpecsBehindLinksAreGone(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, dir string, git func(...string)){
		"a folder in it": func(t *testing.T, dir string, git func(...string)) {
			git("mv", "specs/sub", ".hidden")
			symlink(t, dir, "specs/sub", "../.hidden")
			writeFiles(t, dir, map[string]string{".hidden/a.yaml": hugeSpec})
		},
		"no spec any more": func(t *testing.T, dir string, _ func(...string)) {
			writeFiles(t, dir, map[string]string{"specs/sub/a.yaml": "model: {preset: gpt}\n"})
		},
		"the folder": func(t *testing.T, dir string, git func(...string)) {
			git("mv", "specs", ".hidden")
			writeFiles(t, dir, map[string]string{"fine/b.yaml": "memplan: 1\nmodel: {preset: lenet}\n"})
			symlink(t, dir, "specs", "fine")
		},
		"a repository": func(t *testing.T, dir string, git func(...string)) {
			git("init", "-q", "specs/sub") // a submodule
			writeFiles(t, dir, map[string]string{"specs/sub/a.yaml": hugeSpec})
			git("-C", "specs/sub", "add", "-A")
			git("-C", "specs/sub", "commit", "-q", "-m", "x")
			git("-C", "specs/sub", "update-ref", "refs/remotes/origin/main", "HEAD")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, git, memplan := owned(t, map[string]string{"specs/sub/a.yaml": smallSpec, "specs/keep.yaml": smallSpec})
			change(t, dir, git)
			out, _ := memplan("check", "specs", "--against-git", "origin/main")
			if !strings.Contains(out, "specs/sub/a.yaml:1:1: note: the spec was there at origin/main, and is gone") {
				t.Error(out)
			}
		})
	}
}

// Links are in projects of honest people, too.
func TestLinksInCommit(t *testing.T) {
	dir, git, memplan := owned(t, map[string]string{"specs/a.yaml": smallSpec, "ci/gate.yaml": "max_growth: 1%\n", "hf/v1.json": `{"model_type": "gpt2"}`,
		"specs/h.yaml": "memplan: 1\nmodel: {hf: ../hf/config.json}\ntrain: {batch_size: 1}\ndevice: {gpu: t4}\n"})
	symlink(t, dir, "specs/alias.yaml", "a.yaml")
	symlink(t, dir, ".memplan.yaml", "ci/gate.yaml")
	symlink(t, dir, "hf/config.json", "v1.json")
	git("add", "-A")
	git("commit", "-q", "-m", "links")
	if out, code := memplan("check", "specs", "--against-git", "HEAD"); code != 0 || strings.Contains(out, "MP010") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	writeFiles(t, dir, map[string]string{"specs/h.yaml": "memplan: 1\nmodel: {hf: ../hf/config.json}\ntrain: {batch_size: 2}\ndevice: {gpu: t4}\n"})
	if out, code := memplan("check", "specs", "--against-git", "HEAD"); code != exitGate || !strings.Contains(out, "specs/h.yaml:3:21: error: on t4: the peak of") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// Reports and baselines are not written through links of a stranger's.
func TestReportsFollowNoLinkOut(t *testing.T) {
	dir, _, memplan := owned(t, map[string]string{"specs/a.yaml": smallSpec})
	out := t.TempDir()
	writeFiles(t, out, map[string]string{"rc": "mine\n"})
	symlink(t, dir, "report.xml", filepath.Join(out, "rc"))
	symlink(t, dir, "config.xml", ".git/config")
	symlink(t, dir, "folder", out)
	before, err := os.ReadFile(filepath.Join(dir, ".git", "config"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"report.xml", "config.xml", "folder/new.xml"} {
		for _, args := range [][]string{{"--report", "junit=" + name}, {"--write-baseline", name}} {
			if text, code := memplan(append([]string{"check", "specs"}, args...)...); code != exitUsage {
				t.Errorf("%v: exit code %d\n%s", args, code, text)
			}
		}
	}
	if text, _ := os.ReadFile(filepath.Join(out, "rc")); string(text) != "mine\n" {
		t.Errorf("%q", text)
	}
	if after, _ := os.ReadFile(filepath.Join(dir, ".git", "config")); string(after) != string(before) {
		t.Errorf("%q", after)
	}
	if _, err := os.Lstat(filepath.Join(out, "new.xml")); err == nil {
		t.Error("a file was made outside")
	}
}

// A submodule has not the commit that its project is compared with.
func TestSubmoduleIsCheckedAllTheSame(t *testing.T) {
	dir, git, memplan := owned(t, map[string]string{"specs/a.yaml": smallSpec})
	git("init", "-q", "specs/ext")
	writeFiles(t, dir, map[string]string{"specs/ext/b.yaml": smallSpec})
	git("-C", "specs/ext", "add", "-A")
	git("-C", "specs/ext", "commit", "-q", "-m", "x")
	for _, args := range [][]string{{"specs"}, {"specs/ext"}, {"specs/ext/b.yaml", "specs/a.yaml"}} {
		if out, code := memplan(append([]string{"check", "--against-git", "origin/main"}, args...)...); code != 0 || !strings.Contains(out, "FITS    specs/ext/b.yaml") {
			t.Errorf("%v: exit code %d\n%s", args, code, out)
		}
	}
}

// A link out of the project that is met in a folder is a finding, and what it leads to
// is not read: not to tell whether it is a spec, and not to find what it was called.
func TestLinksOutAreNotRead(t *testing.T) {
	dir, git, memplan := owned(t, map[string]string{"specs/a.yaml": smallSpec, "old/gone.yaml": "memplan: 1\nmodel: {preset: lenet}\n"})
	out := t.TempDir()
	writeFiles(t, out, map[string]string{"spec": "memplan: 1\nmodel: {preset: lenet}\n", "secret": "machine example.org password hunter2\n"})
	links := map[string]string{"spec.yaml": filepath.Join(out, "spec"), "secret.yaml": filepath.Join(out, "secret"), "nowhere.yaml": filepath.Join(out, "nowhere"),
		"chain.yaml": "../passed", "folder.yaml": out}
	symlink(t, dir, "passed", filepath.Join(out, "secret"))
	for name, to := range links {
		symlink(t, dir, "specs/"+name, to)
	}
	git("rm", "-q", "old/gone.yaml")
	for _, args := range [][]string{nil, {"--against-git", "origin/main"}} {
		text, code := memplan(append([]string{"check", "specs"}, args...)...)
		for name := range links {
			if want := "specs/" + name + ":1:1: error: specs/" + name + " is a link that leads out of the project"; !strings.Contains(text, want) {
				t.Errorf("%v: no %q in\n%s", args, want, text)
			}
		}
		if code != exitUsage || strings.Contains(text, "hunter2") {
			t.Errorf("%v: exit code %d\n%s", args, code, text)
		}
	}
	at, err := new(Streams).openCommit("origin/main")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	conf, err := gate.ParseConfig("", dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	conf.Outside = func(path string) bool { return path == "specs/spec.yaml" }
	if _, err := at.moved(conf, []string{"."}, []string{"specs/a.yaml", "specs/spec.yaml"}); err != nil || len(at.renamed) > 0 {
		t.Errorf("%v, %v", at.renamed, err)
	}
}
