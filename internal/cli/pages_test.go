package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/snapshot"
)

// page is a page of prose with specs, commands and what they print.
type page struct {
	file string
	// skip are beginnings of commands that need more than the files of a test.
	skip []string
}

var pages = []page{
	{"README.md", records},
	{"docs/huggingface.md", nil},
	{"docs/jobs.md", nil},
	{"docs/report.md", nil},
	{"docs/snapshots.md", nil},
	{"docs/record.md", records},
	{"docs/run.md", nil},
	{"docs/ci.md", []string{"memplan check --against-git"}}, // TestCheckedGit and check_git.txtar run it
}

// records need a Python with PyTorch; record.txtar and internal/record run what does not.
var records = []string{"memplan record"}

// pageFiles are the files that the pages' commands name, beside tiny.yaml, the
// README's first spec.
var pageFiles = map[string]string{
	"oom.pickle":            smallSnapshot(),
	"train.log":             "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 39.49 GiB of which 0 bytes is free.\n",
	"my.yaml":               "memplan: 1\nmodel: {preset: mlp}\n",
	"lab.yaml":              "- {name: lab-card, memory: 20GiB, arch: 8.9, sms: 60}\n",
	"bert-base/config.json": `{"model_type": "bert", "architectures": ["BertForSequenceClassification"]}`,
	"llama/config.json":     `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2}`,
	"qlora.yml":             exampleFiles["qlora.yml"],
	"accelerate.yaml":       exampleFiles["accelerate.yaml"],
	"train.yaml":            "memplan: 1\nmodel: {preset: mlp}\ndevice: {gpu: rtx-3060}\n",
	"specs/mlp.yaml":        "memplan: 1\nmodel: {preset: mlp}\ndevice: {gpu: rtx-3060}\n",
}

// TestPages runs the specs and the memplan commands of the pages, and checks that
// what they show of outputs is what comes. The reference of the language has a
// test of its own (TestLanguage).
func TestPages(t *testing.T) {
	needs.Time(t, needs.Alone)
	for _, p := range pages {
		t.Run(p.file, func(t *testing.T) {
			text, err := os.ReadFile("../../" + p.file)
			if err != nil {
				t.Fatal(err)
			}
			readme, err := os.ReadFile("../../README.md")
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			write := func(name, text string) {
				name = filepath.Join(dir, filepath.FromSlash(name))
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range pageFiles {
				write(name, text)
			}
			recorded, err := os.ReadFile(needs.File(t, "record", "net_batches.rec.gz"))
			if err != nil {
				t.Fatal(err)
			}
			write("train.rec.gz", string(recorded))
			tiny := blockRE.FindStringSubmatch(string(readme[strings.Index(string(readme), "```yaml"):]))[3]
			write("tiny.yaml", tiny)
			job, _, _ := strings.Cut(strings.SplitN(string(readme), "```yml\n", 2)[1], "```")
			write("qlora.yml", job)
			p.run(t, string(text), dir, tiny, write)
		})
	}
}

func (p *page) run(t *testing.T, text, dir, tiny string, write func(name, text string)) {
	command := "" // the first one above
	for _, m := range blockRE.FindAllStringSubmatch(text, -1) {
		switch kind, block := m[1], m[3]; kind {
		case "yaml":
			if !strings.HasPrefix(block, "memplan:") { // no spec
				continue
			}
			write("spec.yaml", block)
			if _, errs, code := run(t, "memplan estimate spec.yaml", dir); code != exitOK {
				t.Errorf("exit code %d\n%s\n%s", code, block, errs)
			}
			if err := os.Remove(filepath.Join(dir, "spec.yaml")); err != nil {
				t.Fatal(err)
			}
		case "sh":
			command = strings.Replace(firstCommand(block), "make estimate", "memplan estimate", 1)
			for _, line := range regexp.MustCompile(`(?m)^memplan [^#\n]*`).FindAllString(block, -1) {
				if p.skips(line) {
					continue
				}
				if _, errs, code := run(t, strings.TrimSpace(line), dir); code != exitOK {
					t.Errorf("%s: exit code %d\n%s", line, code, errs)
				}
			}
		case "text":
			p.shown(t, block, command, dir, tiny, write)
		}
	}
}

func firstCommand(block string) string {
	line, _, _ := strings.Cut(block, "\n")
	line, _, _ = strings.Cut(line, "#")
	return strings.TrimSpace(line)
}

func (p *page) skips(command string) bool {
	for _, s := range p.skip {
		if strings.HasPrefix(command, s) {
			return true
		}
	}
	return false
}

// shown holds what a page shows against what the command above prints, or, of a
// mistake in tiny.yaml, against what is said of that.
func (p *page) shown(t *testing.T, block, command, dir, tiny string, write func(name, text string)) {
	switch {
	case strings.HasPrefix(block, "tiny.yaml:"):
		write("tiny.yaml", strings.Replace(tiny, "Conv2d", "Conv2D", 1))
		_, errs, code := run(t, "memplan estimate tiny.yaml", dir)
		if code != exitUsage || !strings.HasPrefix(errs, strings.TrimSuffix(block, "\n")) {
			t.Errorf("shown is\n%s\nand memplan prints (%d)\n%s", block, code, errs)
		}
		write("tiny.yaml", tiny)
		return
	case strings.HasPrefix(block, "specs/gpt.yaml:"):
		write("specs/gpt.yaml", "memplan: 1\nmodel: {preset: gpt}\ntrain:\n  batch_size: 64\ndevice: {gpu: rtx-3060}\n")
		defer write("specs/gpt.yaml", "memplan: 1\nmodel: {preset: mlp}\n") // for the commands below
		command = "memplan check specs"
	case strings.HasPrefix(block, "specs/mlp.yaml:"): // a project whose batch grew
		dir, command = grown(t), "memplan check specs --against-git main"
	case strings.HasPrefix(block, "PASSED "): // a configuration that enforces less
		write(".memplan.yaml", "devices: [a100-40gb, h100-80gb]\nfail_on: never\nrules: {MP001: off, MP003: note}\n")
		defer write(".memplan.yaml", "")
		command = "memplan check my.yaml tiny.yaml"
		write("tiny.yaml", strings.Replace(tiny, "device:\n  gpu: rtx-3060\n", "", 1))
		defer write("tiny.yaml", tiny)
	}
	out, _, _ := run(t, command, dir)
	for line := range strings.Lines(block) {
		begin, end, _ := strings.Cut(line, "...")
		if !slices.ContainsFunc(strings.SplitAfter(out, "\n"), func(l string) bool { return strings.HasPrefix(l, begin) && strings.HasSuffix(l, end) }) {
			t.Errorf("%s does not print the line that is shown: %s", command, line)
		}
	}
}

// grown is a project with a spec whose batch is larger than in the commit main.
func grown(t *testing.T) string {
	git := needs.Tool(t, "git")
	dir := t.TempDir()
	write := func(batch string) {
		text := "memplan: 1\nmodel: {preset: mlp}\ntrain:\n  batch_size: " + batch + "\ndevice: {gpu: t4}\n"
		if err := os.WriteFile(filepath.Join(dir, "specs", "mlp.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "specs"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("4096")
	for _, args := range []string{"init -q -b main", "add -A", "-c user.name=a -c user.email=a@example.org commit -q -m first"} {
		c := exec.Command(git, strings.Fields(args)...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
	}
	write("16384")
	return dir
}

// Every page with specs or commands is tested.
func TestPagesAll(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{
		"docs/language.md":  true, // by TestLanguage
		"docs/operators.md": true, // by TestLanguage
		"docs/peft.md":      true, // by TestLanguage
		"docs/cli.md":       true, // by TestDocs and TestExamples
		"docs/release.md":   true, // by tools/release
	}
	for _, p := range pages {
		tested[p.file] = true
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name := "docs/" + filepath.Base(f)
		if has := strings.Contains(string(text), "```yaml") || strings.Contains(string(text), "```sh"); has && !tested[name] {
			t.Errorf("%s has examples that no test runs; name it in pages", name)
		}
	}
}

// smallSnapshot is a snapshot in which one request failed.
func smallSnapshot() string {
	block := snapshot.Block{Address: 1 << 45, Size: 2 << 20, Requested: 2 << 20, State: snapshot.Allocated}
	s := snapshot.Snapshot{Devices: []snapshot.Device{{
		Segments: []snapshot.Segment{{Address: 1 << 45, Size: 2 << 20, Small: true, Blocks: []snapshot.Block{block}}},
		Events:   []snapshot.Event{{Action: snapshot.OOM, Address: 1 << 20, Size: 4 << 20}},
	}}}
	var b strings.Builder
	if err := s.Write(&b); err != nil {
		panic(err)
	}
	return b.String()
}

// The README is what the first hour needs; its figures are those of
// docs/accuracy.md.
func TestREADME(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 270 {
		t.Errorf("the README has %d lines", n)
	}
	accuracy, err := os.ReadFile("../../docs/accuracy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, exact, _ := strings.Cut(string(text), "\nHow exact is it? ")
	exact, _, _ = strings.Cut(exact, "\n\n")
	figures := regexp.MustCompile(`\d+ of \d+|[\d.]+ %`).FindAllString(exact, -1)
	if len(figures) < 5 {
		t.Fatalf("the README has the figures %q", figures)
	}
	for _, f := range figures {
		if !strings.Contains(string(accuracy), " "+f+" ") {
			t.Errorf("docs/accuracy.md does not have the figure %s", f)
		}
	}
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := "docs/" + filepath.Base(f); !strings.Contains(string(text), "("+name+")") {
			t.Errorf("the README does not name %s", name)
		}
	}
}
