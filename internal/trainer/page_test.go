package trainer

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the lists of docs/trainer.md")

var tables = append([]*Table{HF, SFT, DPO, GRPO, Lightning, Torchtitan, Megatron}, LitGPTTables()...)

// The page lists what the tables have.
func TestPage(t *testing.T) {
	const page = "../../docs/trainer.md"
	was, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(was)
	for _, table := range tables {
		begin, end := "<!-- arguments: "+table.Name+" -->\n", "<!-- end -->"
		head, rest, ok := strings.Cut(text, begin)
		_, tail, found := strings.Cut(rest, end)
		if !ok || !found {
			t.Fatalf("%s has no list of %s", page, table.Name)
		}
		text = head + begin + table.list() + end + tail
	}
	if text == string(was) {
		return
	}
	if !*update {
		t.Fatalf("%s is stale: run go test ./internal/trainer -update", page)
	}
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// list is the table as Markdown.
func (t *Table) list() string {
	var b strings.Builder
	b.WriteString("\n| argument | default | reaches | why |\n|---|---|---|---|\n")
	for i := range t.Arguments {
		a := &t.Arguments[i]
		name := "`" + a.Name + "`"
		switch {
		case a.Since != "":
			name += " (5.12)"
		case a.Until != "":
			name += " (4.51)"
		}
		value := python(a.Default)
		if a.Old != nil {
			value += ", 4.51: " + python(a.Old)
		}
		fmt.Fprintf(&b, "| %s | %s | %v | %s |\n", name, value, a.Reach, a.Why)
	}
	return b.String() + "\n"
}

func python(x any) string {
	switch x := x.(type) {
	case nil:
		return "None"
	case bool:
		return map[bool]string{true: "True", false: "False"}[x]
	case string:
		return fmt.Sprintf("%q", x)
	}
	return fmt.Sprint(x)
}

// Each argument is listed once in a release, and says why it reaches what it does.
func TestArguments(t *testing.T) {
	for _, table := range tables {
		seen := map[string]bool{}
		for i := range table.Arguments {
			a := &table.Arguments[i]
			if seen[a.Name] || a.Why == "" {
				t.Errorf("%s: %s is listed twice, or says nothing", table.Name, a.Name)
			}
			seen[a.Name] = true
		}
	}
	for _, o := range Optimizers {
		if (o.Row == "") == (o.Missing == "") {
			t.Errorf("%s has an optimizer or says what is missing", o.Name)
		}
	}
}
