package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// TestDocs holds what is generated of the commands against the files in docs:
// the reference, the manual pages and the exit codes. -update rewrites them.
func TestDocs(t *testing.T) {
	want := map[string][]byte{"exit-codes.md": exitCodesDoc()}
	var reference bytes.Buffer
	reference.WriteString("# Commands\n\nThe commands and flags of memplan, as `memplan help` prints them. [Exit codes](exit-codes.md) are the same for all.\n")
	root := newRoot(System())
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.DisableAutoGenTag = true
		c.InitDefaultHelpFlag()
		c.Long = strings.ReplaceAll(c.Long, "\n  ", "\n    ") // lists of help, as Markdown marks what is printed as it stands
		var page, section bytes.Buffer
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		if err := doc.GenMan(c, &doc.GenManHeader{Section: "1", Source: "memplan", Manual: "memplan", Date: &time.Time{}}, &page); err != nil {
			t.Fatal(err)
		}
		want["man/"+name+".1"] = bytes.Replace(page.Bytes(), []byte(`"Jan 0001"`), []byte(`""`), 1) // undated, as the text decides
		link := func(file string) string {
			return "#" + strings.ReplaceAll(strings.TrimSuffix(file, ".md"), "_", "-")
		}
		if err := doc.GenMarkdownCustom(c, &section, link); err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(section.String(), "### SEE ALSO")
		reference.WriteString("\n" + strings.TrimSpace(text) + "\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" {
				walk(sub)
			}
		}
	}
	walk(root)
	want["cli.md"] = reference.Bytes()
	const docs = "../../docs"
	if *update {
		if err := os.MkdirAll(docs+"/man", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range want {
		file := filepath.Join(docs, filepath.FromSlash(name))
		if *update {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, text) {
			t.Errorf("docs/%s is not what the commands say (%v); run go test ./internal/cli -run TestDocs -update", name, err)
		}
	}
	pages, err := filepath.Glob(docs + "/man/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		if want["man/"+filepath.Base(p)] == nil {
			t.Errorf("%s is of a command that is not there", p)
		}
	}
}

// exitCodesDoc is docs/exit-codes.md.
func exitCodesDoc() []byte {
	var b bytes.Buffer
	b.WriteString("# Exit codes\n\n| code | when |\n|---:|---|\n")
	for _, e := range exitDocs {
		fmt.Fprintf(&b, "| %d | %s |\n", e.code, e.when)
	}
	b.WriteString("\nResults go to standard output, errors and warnings about them to standard error.\n")
	return b.Bytes()
}

// Every exit code has its line.
func TestExitDocs(t *testing.T) {
	seen := map[int]bool{}
	for _, e := range exitDocs {
		seen[e.code] = true
	}
	for _, code := range []int{exitOK, exitGate, exitUsage, exitFailed, exitMismatch, exitInterrupted, exitTerminated} {
		if !seen[code] {
			t.Errorf("exit code %d is not documented", code)
		}
	}
}

// TestCompletion asks for completions as shells do.
func TestCompletion(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"estimate --gpu a100", "a100-40gb\tNVIDIA A100 40GB"},
		{"estimate --gpu t4,a100-8", "t4,a100-80gb"},
		{"estimate --precision ", "amp-bf16"},
		{"estimate --optimizer Ada", "AdamW"},
		{"estimate --format ku", "kubernetes"},
		{"diff --format mark", "markdown"},
		{"estimate preset:hf/ll", "preset:hf/llama"},
		{"diff preset:g", "preset:gpt"},
		{"explain scaled", "scaled_dot_product_attention"},
		{"simulate --format j", "json"},
		{"list pre", "presets"},
		{"help est", "estimate"},
		{"completion z", "zsh"},
		{"--color al", "always"},
	} {
		var out, errs bytes.Buffer
		s := &Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Env: os.LookupEnv}
		args := strings.Split(c.line, " ")
		if code := Main(append([]string{cobra.ShellCompRequestCmd}, args...), s); code != exitOK || !strings.Contains("\n"+out.String(), "\n"+c.want) {
			t.Errorf("%s: exit code %d, %q does not have %q\n%s", c.line, code, out.String(), c.want, errs.String())
		}
	}
}
