package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
)

// hostile is a repository of git that an attacker wrote into a pull request: a
// bare one, which is a folder of ordinary files, whose configuration names
// commands.
type hostile struct {
	name   string
	config string                              // %s is a command that leaves a mark
	more   func(t *testing.T, git, run string) // writes more, given the folder and the command
}

// hostileRepos are ways in which git runs commands of a repository's own
// configuration: each was seen to, or is documented to.
var hostileRepos = []hostile{
	{name: "lazy fetch", config: "[extensions]\npartialClone = origin\n[remote \"origin\"]\nurl = .\npromisor = true\nuploadpack = \"%s; false\"\n"},
	{name: "fsmonitor", config: "[core]\nfsmonitor = \"%s\"\n"},
	{name: "ssh", config: "[core]\nsshCommand = \"%s\"\n[extensions]\npartialClone = origin\n[remote \"origin\"]\nurl = ssh://nobody/x\npromisor = true\n"},
	{name: "alias", config: "[alias]\ncat-file = \"!%[1]s\"\nrev-parse = \"!%[1]s\"\nls-tree = \"!%[1]s\"\n"},
	{name: "pager and editor", config: "[core]\npager = \"%[1]s\"\neditor = \"%[1]s\"\n[pager]\ncat-file = true\nls-tree = true\nrev-parse = true\n"},
	{name: "textconv and filter", config: "[diff \"evil\"]\ntextconv = \"%[1]s\"\ncommand = \"%[1]s\"\n[filter \"evil\"]\nsmudge = \"%[1]s\"\nclean = \"%[1]s\"\nprocess = \"%[1]s\"\n",
		more: func(t *testing.T, git, _ string) {
			writeFiles(t, git, map[string]string{"info/attributes": "* diff=evil filter=evil\n", "../.gitattributes": "* diff=evil filter=evil\n"})
		}},
	{name: "hooks", config: "[core]\nhooksPath = hooks\n",
		more: func(t *testing.T, git, run string) {
			for _, h := range []string{"post-checkout", "reference-transaction", "post-index-change", "fsmonitor-watchman", "pre-auto-gc"} {
				writeFiles(t, git, map[string]string{"hooks/" + h: "#!/bin/sh\n" + run + "\n"})
				if err := os.Chmod(filepath.Join(git, "hooks", h), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}},
	{name: "include", config: "[include]\npath = more\n",
		more: func(t *testing.T, git, run string) {
			writeFiles(t, git, map[string]string{"more": "[core]\nfsmonitor = \"" + run + "\"\nsshCommand = \"" + run + "\"\n"})
		}},
	{name: "credentials and proxy", config: "[credential]\nhelper = \"!%[1]s\"\n[core]\ngitProxy = \"%[1]s\"\naskPass = \"%[1]s\"\n[extensions]\npartialClone = origin\n[remote \"origin\"]\nurl = git://nobody/x\npromisor = true\n"},
	{name: "external transport", config: "[extensions]\npartialClone = origin\n[remote \"origin\"]\nurl = \"ext::%s\"\npromisor = true\n[protocol]\nallow = always\n[protocol \"ext\"]\nallow = always\n"},
	{name: "signatures", config: "[gpg]\nprogram = \"%[1]s\"\n[log]\nshowSignature = true\n[commit]\ngpgSign = true\n"},
	{name: "alternates", config: "[core]\nalternateRefsCommand = \"%s\"\n",
		more: func(t *testing.T, git, _ string) {
			writeFiles(t, git, map[string]string{"objects/info/alternates": "/nowhere/objects\n"})
		}},
}

// writeFiles writes files below a folder.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHostileGit calls everything that reads commits in and beside folders that
// are repositories of an attacker's: nothing runs, neither git nor what such
// folders name.
func TestHostileGit(t *testing.T) {
	needs.Time(t, "hundreds of processes, in which nothing runs at the same time as something else")
	needs.Tool(t, "git", "sh")
	folders := []string{"evil", ".", "evil/nested/deep", "evil/objects"}
	for i, h := range hostileRepos {
		t.Run(h.name, func(t *testing.T) {
			dir, first := project(t)
			mark := filepath.Join(t.TempDir(), "PWNED")
			run := "touch " + mark
			evil := filepath.Join(dir, "evil")
			config := h.config
			if strings.Contains(config, "%") {
				config = fmt.Sprintf(config, run)
			}
			missing := strings.Repeat("1", 40) // a commit that is not there is fetched
			writeFiles(t, evil, map[string]string{
				"HEAD":                "ref: refs/heads/main\n",
				"config":              "[core]\nrepositoryformatversion = 1\nbare = false\nworktree = ..\n" + config,
				"refs/heads/main":     missing + "\n",
				"refs/heads/fetched":  first + "\n",
				"objects/info/x":      "",
				"x.yaml":              "memplan: 1\nmodel: {preset: mlp}\ndevice: {gpu: t4}\n",
				"hf.yaml":             "memplan: 1\nmodel: {hf: config.json}\ndevice: {gpu: t4}\n",
				"config.json":         `{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 1}`,
				".memplan.yaml":       "device_table: gpus.yaml\n",
				"gpus.yaml":           "- {name: own, memory: 20GiB, arch: 8.9, sms: 60}\n",
				"nested/deep/y.yaml":  "memplan: 1\nmodel: {preset: lenet}\ndevice: {gpu: t4}\n",
				"branches/x":          "",
				"logs/refs/heads/old": "",
			})
			if h.more != nil {
				h.more(t, evil, run)
			}
			// A git that leaves the mark by itself: none is to be called at all.
			bin := t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "git"), []byte("#!/bin/sh\n"+run+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			asMemplan(t, bin)
			for _, where := range []string{folders[0], folders[1+i%3]} { // all of them, of each three
				for _, args := range [][]string{
					{"check", ".", "--against-git", first},
					{"check", ".", "--against-git", "main"},
					{"check", ".", "--against-git", missing},
					{"check", dir, "--against-git", "main~1"},
					{"check", filepath.Join(evil, "x.yaml"), filepath.Join(evil, "hf.yaml"), "--against-git", "HEAD"},
					{"check", "--config", "main:evil/.memplan.yaml", dir},
					{"check", "--config", first + ":.memplan.yaml", evil},
					{"estimate", "HEAD:evil/x.yaml"},
					{"estimate", missing + ":x.yaml"},
					{"estimate", "main:specs/my model.yaml"},
					{"export", "torch", "HEAD:x.yaml"},
					{"diff", "main:evil/x.yaml", filepath.Join(evil, "x.yaml")},
					{"diff", missing + ":x.yaml", "main~1:x.yaml"},
				} {
					c := exec.Command(filepath.Join(bin, "memplan"), args...)
					c.Dir = filepath.Join(dir, where)
					c.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
					out, err := c.CombinedOutput()
					if c.ProcessState == nil || c.ProcessState.ExitCode() < 0 {
						t.Fatalf("%v in %s: %v\n%s", args, where, err, out)
					}
					if strings.Contains(string(out), "internal error") || strings.Contains(string(out), "goroutine ") {
						t.Errorf("%v in %s:\n%s", args, where, out)
					}
					if _, err := os.Lstat(mark); err == nil {
						t.Fatalf("memplan %v in %s ran a command", args, where)
					}
				}
			}
		})
	}
}

// TestHostileGitAction runs the script of action.yml in a working directory that
// is an attacker's repository: the one git that it calls is about the top of the
// project alone.
func TestHostileGitAction(t *testing.T) {
	needs.Time(t, needs.Alone)
	for _, h := range hostileRepos {
		t.Run(h.name, func(t *testing.T) {
			dir, first := project(t)
			mark := filepath.Join(t.TempDir(), "PWNED")
			run := "touch " + mark
			config := h.config
			if strings.Contains(config, "%") {
				config = fmt.Sprintf(config, run)
			}
			evil := filepath.Join(dir, "evil")
			writeFiles(t, evil, map[string]string{
				"HEAD": "ref: refs/heads/main\n", "config": "[core]\nrepositoryformatversion = 1\nbare = false\nworktree = ..\n" + config,
				"refs/heads/main": first + "\n", "objects/info/x": "",
				"x.yaml": "memplan: 1\nmodel: {preset: mlp}\ndevice: {gpu: t4}\n",
			})
			if h.more != nil {
				h.more(t, evil, run)
			}
			for _, base := range []string{first, strings.Repeat("1", 40)} { // one that is there, one that must be fetched
				out, code := runAction(t, dir, "evil", base)
				if _, err := os.Lstat(mark); err == nil {
					t.Fatalf("the action ran a command\n%s", out)
				}
				if base == first && code != 0 {
					t.Errorf("exit code %d\n%s", code, out)
				}
			}
		})
	}
}

// runAction runs the step of action.yml that checks.
func runAction(t *testing.T, dir, where, base string) (out string, code int) {
	t.Helper()
	var a action
	decodeYAML(t, "action.yml", &a)
	temp := t.TempDir()
	asMemplan(t, temp)
	step := a.step(t, "check")
	env := []string{"RUNNER_TEMP=" + temp, "GITHUB_STEP_SUMMARY=" + filepath.Join(temp, "summary"), "GITHUB_OUTPUT=" + filepath.Join(temp, "outputs"),
		"GITHUB_WORKSPACE=" + dir, "INPUT_PATHS=.", "INPUT_CONFIG=", "INPUT_AGAINST=", "INPUT_ARGS=", "INPUT_AGAINST_GIT=" + base}
	return shell(t, "bash", step.Run, filepath.Join(dir, where), env...)
}
