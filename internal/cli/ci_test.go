package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/memplan/memplan/internal/gate"
	"github.com/memplan/memplan/internal/needs"
)

// What continuous integration takes from the repository is exercised as far as
// that is possible without the service: the files are parsed, and their shell
// steps run with git and this memplan, but without a network.

// asMemplan makes dir/memplan run this test's own memplan.
func asMemplan(t *testing.T, dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	needs.Symlink(t, self, filepath.Join(dir, "memplan"))
}

// decodeYAML reads a file of the repository.
func decodeYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// project is a repository with two specs, of which the second commit makes one
// larger.
func project(t *testing.T) (dir, first string) {
	t.Helper()
	needs.Tool(t, "git", "bash", "sh")
	dir = t.TempDir()
	git := func(args ...string) string {
		c := exec.Command("git", append([]string{"-c", "user.name=nobody", "-c", "user.email=nobody@example.org"}, args...)...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("specs/my model.yaml", "memplan: 1\nmodel: {preset: mlp}\ntrain: {batch_size: 1024}\ndevice: {gpu: t4}\n")
	write("other/lenet.yaml", "memplan: 1\nmodel: {preset: lenet}\ndevice: {gpu: t4}\n")
	write("values.yaml", "image: x\n")
	git("init", "-q", "-b", "main")
	git("add", "-A")
	git("commit", "-q", "-m", "first")
	first = git("rev-parse", "HEAD")
	write("specs/my model.yaml", "memplan: 1\nmodel: {preset: mlp}\ntrain: {batch_size: 65536}\ndevice: {gpu: t4}\n")
	git("commit", "-q", "-a", "-m", "larger")
	return dir, first
}

// shell runs a script and returns what it prints and its exit code.
func shell(t *testing.T, name, script, dir string, env ...string) (string, int) {
	t.Helper()
	args := []string{"-e", "-c", script}
	if name == "bash" { // as GitHub calls it
		args = []string{"--noprofile", "--norc", "-eo", "pipefail", "-c", script}
	}
	c := exec.Command(name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

type action struct {
	Name, Description, Author string
	Inputs                    map[string]struct{ Description, Default string }
	Outputs                   map[string]struct{ Description, Value string }
	Runs                      struct {
		Using string
		Steps []actionStep
	}
}

type actionStep struct {
	Name, ID, If, Uses, Shell, Run string
	With, Env                      map[string]string
	Dir                            string `yaml:"working-directory"`
}

// step is the one with that id.
func (a *action) step(t *testing.T, id string) actionStep {
	t.Helper()
	for _, s := range a.Runs.Steps {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("action.yml has no step %s", id)
	return actionStep{}
}

func TestAction(t *testing.T) {
	var a action
	decodeYAML(t, "action.yml", &a)
	if a.Runs.Using != "composite" || len(a.Runs.Steps) != 4 {
		t.Fatalf("%+v", a.Runs)
	}
	dir, first := project(t)
	input := regexp.MustCompile(`\$\{\{ inputs\.([a-z-]+) \}\}`)
	for _, s := range a.Runs.Steps {
		if s.Uses == "" && s.Shell == "" {
			t.Errorf("step %q needs a shell", s.Name)
		}
		if strings.Contains(s.Run, "${{") {
			t.Errorf("step %q pastes values into its script", s.Name)
		}
		for _, v := range s.Env {
			if m := input.FindStringSubmatch(v); m != nil {
				if _, ok := a.Inputs[m[1]]; !ok {
					t.Errorf("there is no input %s", m[1])
				}
			}
		}
	}

	// The step that builds, with a go that only notes how it was called.
	temp, bin := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH")
	out, code := shell(t, "bash", a.step(t, "build").Run, dir, path, "RUNNER_TEMP="+temp, "ACTION_PATH=/the action")
	if want := "build -C /the action -o " + temp + "/memplan ./cmd/memplan\n"; code != 0 || out != want {
		t.Errorf("%d, %q, want %q", code, out, want)
	}

	asMemplan(t, temp)
	step := a.step(t, "check")
	run := func(where string, set map[string]string) (out string, code int, outputs string) {
		summary, results := filepath.Join(t.TempDir(), "summary"), filepath.Join(t.TempDir(), "outputs")
		env := []string{"RUNNER_TEMP=" + temp, "GITHUB_STEP_SUMMARY=" + summary, "GITHUB_OUTPUT=" + results, "GITHUB_WORKSPACE=" + dir}
		for name, v := range step.Env {
			in := input.FindStringSubmatch(v)[1]
			value, ok := set[in]
			if !ok && !strings.Contains(a.Inputs[in].Default, "${{") {
				value = a.Inputs[in].Default
			}
			env = append(env, name+"="+value)
		}
		out, code = shell(t, "bash", step.Run, filepath.Join(dir, where), env...)
		said, _ := os.ReadFile(results)
		if text, _ := os.ReadFile(summary); !strings.Contains(string(text), "### memplan check: ") {
			t.Errorf("summary: %q\n%s", text, out)
		}
		return out, code, string(said)
	}
	out, code, outputs := run(".", nil)
	if code != 0 || !strings.Contains(out, "PASSED  2 specs on 1 GPU") || !strings.HasPrefix(outputs, "exit-code=0\nsarif="+temp) {
		t.Errorf("%d\n%s\n%s", code, out, outputs)
	}
	out, code, outputs = run(".", map[string]string{"against-git": first, "paths": "specs/my model.yaml\nother\n", "args": "--max-growth=1%\n--rule\nMP006=off"})
	if code != 1 || !strings.Contains(out, "::error file=specs/my model.yaml,line=3,col=21,title=MP003 growth::") || !strings.HasPrefix(outputs, "exit-code=1\n") {
		t.Errorf("%d\n%s\n%s", code, out, outputs)
	}
	out, code, _ = run("specs", map[string]string{"against-git": first}) // working-directory; annotations start at the root
	if code != 1 || !strings.Contains(out, "::error file=specs/my model.yaml,line=3") {
		t.Errorf("%d\n%s", code, out)
	}
	if text, err := os.ReadFile(filepath.Join(temp, "memplan-reports", "memplan.sarif")); !strings.Contains(string(text), `"uri": "specs/my%20model.yaml"`) {
		t.Error(string(text), err)
	}
	for _, f := range []string{"memplan.sarif", "memplan.xml", "memplan.md"} {
		if _, err := os.Stat(filepath.Join(temp, "memplan-reports", f)); err != nil {
			t.Error(err)
		}
	}
	// Paths that look like flags are paths, and reports are of this step.
	old := filepath.Join(temp, "memplan-reports", "old")
	if err := os.WriteFile(old, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, map[string]string{"--fail-on=never.yaml": "memplan: 1\nmodel: {preset: gpt}\ntrain: {batch_size: 512}\n"})
	if out, code, _ := run(".", map[string]string{"paths": "--fail-on=never.yaml"}); code != 1 || !strings.Contains(out, "title=MP001 predicted-oom") {
		t.Errorf("%d\n%s", code, out)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("a report of an earlier step is left")
	}
	for name, o := range a.Outputs {
		if key := strings.TrimSuffix(strings.TrimPrefix(o.Value, "${{ steps.check.outputs."), " }}"); !strings.Contains(outputs, key+"=") {
			t.Errorf("output %s is never set", name)
		}
	}
}

func TestGitLab(t *testing.T) {
	var c map[string]struct {
		Image     string
		Variables map[string]string
		Script    []string
		Artifacts struct {
			When    string
			Paths   []string
			Reports struct{ JUnit string }
		}
	}
	decodeYAML(t, "ci/gitlab.yml", &c)
	job := c["memplan"]
	dir, first := project(t)
	bin := t.TempDir()
	asMemplan(t, bin)
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\ncase $1 in env) echo /gopath;; *) echo go \"$@\";; esac\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "CI_MERGE_REQUEST_DIFF_BASE_SHA=" + first}
	for k, v := range job.Variables {
		env = append(env, k+"="+v)
	}
	out, code := shell(t, "sh", strings.Join(job.Script, "\n"), dir, env...)
	if code != 1 || !strings.Contains(out, "go install github.com/memplan/memplan/cmd/memplan@main") || !strings.Contains(out, "[MP003 growth]") {
		t.Errorf("%d\n%s", code, out)
	}
	for _, f := range append(job.Artifacts.Paths, job.Artifacts.Reports.JUnit) {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			t.Error(err)
		}
	}
	writeFiles(t, dir, map[string]string{"--fail-on=never.yaml": "memplan: 1\nmodel: {preset: gpt}\ntrain: {batch_size: 512}\n"})
	out, code = shell(t, "sh", strings.Join(job.Script, "\n"), dir, append(env, "MEMPLAN_PATHS=--fail-on=never.yaml")...)
	if code != 1 || !strings.Contains(out, "[MP001 predicted-oom]") {
		t.Errorf("%d\n%s", code, out)
	}
}

func TestPreCommit(t *testing.T) {
	var hooks []struct {
		ID, Name, Description, Entry, Language, Files string
		Serial                                        bool   `yaml:"require_serial"`
		Oldest                                        string `yaml:"minimum_pre_commit_version"`
	}
	decodeYAML(t, ".pre-commit-hooks.yaml", &hooks)
	h := hooks[0]
	files, err := regexp.Compile(h.Files)
	if err != nil || h.Language != "golang" {
		t.Fatal(h, err)
	}
	dir, _ := project(t)
	bin := t.TempDir()
	asMemplan(t, bin)
	env := "PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH")
	var changed []string // as pre-commit names files: all that changed and fit
	for _, f := range []string{"specs/my model.yaml", "values.yaml", "README.md"} {
		if files.MatchString(f) {
			changed = append(changed, "'"+f+"'")
		}
	}
	if out, code := shell(t, "sh", h.Entry+" "+strings.Join(changed, " "), dir, env); code != 0 || !strings.Contains(out, "PASSED  1 spec") || len(changed) != 2 {
		t.Errorf("%d\n%s", code, out)
	}
	oom := []byte("memplan: 1\nmodel: {preset: gpt}\ntrain: {batch_size: 512}\n")
	if err := os.WriteFile(filepath.Join(dir, "oom.yaml"), oom, 0o644); err != nil {
		t.Fatal(err)
	}
	// Names that look like flags are names.
	for _, name := range []string{"--config=evil.yaml", "--fail-on=never.yaml", "-h.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), oom, 0o644); err != nil {
			t.Fatal(err)
		}
		if out, code := shell(t, "sh", h.Entry+" "+name, dir, env); code != 1 || !strings.Contains(out, name+":3:21: error: ") || !strings.Contains(out, "\nmemplan estimate ./"+name+" says") {
			t.Errorf("%s: %d\n%s", name, code, out)
		}
	}
	if out, code := shell(t, "sh", h.Entry+" oom.yaml values.yaml", dir, env); code != 1 || !strings.Contains(out, "[MP001 predicted-oom]") {
		t.Errorf("%d\n%s", code, out)
	}
}

// TestCIDocs holds docs/ci.md against the code: its rules, its configuration,
// the inputs that it gives the action.
func TestCIDocs(t *testing.T) {
	raw, err := os.ReadFile("../../docs/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	rows := 0
	for _, r := range gate.Rules() {
		row := "| " + r.ID + " | " + r.Name + " | " + string(r.Severity) + " | " + r.Doc + " |\n"
		if strings.Contains(text, row) {
			rows++
		} else {
			t.Errorf("docs/ci.md has no row %s", row)
		}
	}
	if n := strings.Count(text, "\n| MP"); n != rows {
		t.Errorf("docs/ci.md has %d rules, the code %d", n, rows)
	}
	for _, f := range gate.Formats.All() {
		if !strings.Contains(text, "\n| `"+f.Name+"` | ") {
			t.Errorf("docs/ci.md has no format %s", f.Name)
		}
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(blocks) != 4 {
		t.Fatalf("%d blocks of YAML", len(blocks))
	}
	gpus := func(string) ([]byte, error) {
		return []byte("- {name: lab-card, memory: 20GiB, arch: 8.9, sms: 60}\n"), nil
	}
	if _, err := gate.ParseConfig(gate.ConfigName, t.TempDir(), []byte(blocks[0][1]), gpus); err != nil {
		t.Error(err)
	}
	var a action
	decodeYAML(t, "action.yml", &a)
	pinned := regexp.MustCompile(`@[0-9a-f]{40}$`) // tags of others move
	for _, s := range a.Runs.Steps {
		if s.Uses != "" && !pinned.MatchString(s.Uses) {
			t.Errorf("action.yml uses %s, which is no commit", s.Uses)
		}
	}
	var workflow struct {
		Permissions map[string]string
		Jobs        map[string]struct {
			Steps []struct {
				Uses string
				With map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(blocks[1][1]), &workflow); err != nil {
		t.Fatal(err)
	}
	if p := workflow.Permissions; len(p) != 1 || p["contents"] != "read" {
		t.Errorf("the workflow in docs/ci.md may by default %v", p)
	}
	for _, s := range workflow.Jobs["memory"].Steps {
		if !strings.HasPrefix(s.Uses, "memplan/") && !pinned.MatchString(s.Uses) {
			t.Errorf("docs/ci.md uses %s, which is no commit", s.Uses)
		}
		for in, v := range s.With {
			if _, ok := a.Inputs[in]; strings.HasPrefix(s.Uses, "memplan/") && !ok {
				t.Errorf("the action has no input %s", in)
			}
			for _, m := range regexp.MustCompile(`steps\.memplan\.outputs\.(\w+)`).FindAllStringSubmatch(v, -1) {
				if _, ok := a.Outputs[m[1]]; !ok {
					t.Errorf("the action has no output %s", m[1])
				}
			}
		}
	}
}

// What memplan itself broke down over is no mistake of the spec's author.
func TestCheckedCodes(t *testing.T) {
	for _, c := range []struct {
		result gate.Result
		want   int
	}{
		{gate.Result{Unfinished: 1, Unread: 1, Failed: true}, exitFailed},
		{gate.Result{Unread: 1, Failed: true}, exitUsage},
	} {
		if code := exitCode(verdict(&c.result)); code != c.want {
			t.Errorf("%+v: exit code %d, not %d", c.result, code, c.want)
		}
	}
	if err := verdict(&gate.Result{Failed: true}); !errors.As(err, new(answerNo)) {
		t.Errorf("a gate that fails: %v", err)
	}
}
