package importer

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/trainer"
)

// TestDoc holds the tables of docs/jobs.md against those of the formats; -update
// writes them.
func TestDoc(t *testing.T) {
	const path = "../../docs/jobs.md"
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(was)
	var formats, keys strings.Builder
	formats.WriteString("\n| file | of | recognized by |\n|---|---|---|\n")
	for _, f := range Formats() {
		var signs []string
		for _, s := range f.Signs[:min(3, len(f.Signs))] {
			signs = append(signs, "`"+strings.Join(s, "` and `")+"`")
		}
		what := "a job"
		if f.Beside {
			what = "comes with the file of a job"
		}
		fmt.Fprintf(&formats, "| %s | %s | %s |\n", f.Title, what, strings.Join(signs, ", or "))
		if len(f.Keys) == 0 {
			continue
		}
		fmt.Fprintf(&keys, "### %s\n\n| keys | |\n|---|---|\n", f.Title)
		rows := slices.DeleteFunc(slices.Clone(f.Keys), func(k Key) bool {
			a := trainer.HF.Find(k.Name, "")
			if a == nil {
				a = trainer.HF.Find(k.Name, trainer.Old)
			}
			return k.effect == none && a != nil && a.Why == k.text
		})
		for i := 0; i < len(rows); {
			k, names := rows[i], []string{}
			renamed := func(k Key) bool { return k.effect == sets && !strings.HasSuffix(k.text, "."+k.Name) }
			for ; i < len(rows) && rows[i].effect == k.effect && (rows[i].text == k.text || k.effect == sets) && renamed(rows[i]) == renamed(k); i++ {
				names = append(names, rows[i].Name)
			}
			text := map[effect]string{sets: "written to `trainer.hf` under the same name", reads: k.text, none: "no effect: " + k.text, asks: "not modelled: " + k.text}[k.effect]
			if renamed(k) {
				text = "written to `" + k.text + "`"
			}
			fmt.Fprintf(&keys, "| %s | %s |\n", strings.Join(names, " "), text)
		}
		if len(rows) < len(f.Keys) {
			keys.WriteString("| TrainingArguments that reach no memory | no effect, each with its reason in [trainer.md](trainer.md) |\n")
		}
		if f.Passes {
			fmt.Fprintf(&keys, "| all others | written to `trainer.%s` under the same name |\n", f.Trainer)
		}
		keys.WriteString("\n")
	}
	text = between(t, text, "formats", formats.String()+"\n")
	text = between(t, text, "keys", "\n"+keys.String())
	if text == string(was) {
		return
	}
	if !*update {
		t.Fatal("docs/jobs.md is stale: run go test ./internal/importer -run TestDoc -update")
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// between replaces what is between two marks of a page.
func between(t *testing.T, page, mark, with string) string {
	before, rest, ok := strings.Cut(page, "<!-- "+mark+" -->\n")
	_, after, ok2 := strings.Cut(rest, "<!-- /"+mark+" -->")
	if !ok || !ok2 {
		t.Fatalf("docs/jobs.md has no mark %s", mark)
	}
	return before + "<!-- " + mark + " -->\n" + with + "<!-- /" + mark + " -->" + after
}
