package main

import (
	"bytes"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/memplan/memplan/internal/accuracy"
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/exporttorch"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/program"
)

// TestOperatorsInOrder writes the calls of operators that were recorded with their
// arguments by name, or behind inputs, as lists in torch's own order: they are the same
// calls.
func TestOperatorsInOrder(t *testing.T) {
	suites := []string{"operators", "losses", "layouts", "hf_ops", "vision_ops", "fuzz", "rnn", "checkpoint"}
	rewrites(t, suites, 170, 1000, func(text string, _ *program.Job, changed map[string]bool) (string, string) {
		return text, (&rewriter{chosen: always, changed: changed}).spec(text)
	})
}

// TestLayersInOrder writes the arguments of layers as lists in the order of torch's
// constructors, with what is inferred, as the exported script has it: they are the same
// calls as those with these arguments by name.
func TestLayersInOrder(t *testing.T) {
	suites := []string{"operators", "losses", "layouts", "vision_ops", "fuzz", "rnn", "unseen", "unseen2", "ok"}
	rewrites(t, suites, 250, 1000, func(text string, job *program.Job, changed map[string]bool) (string, string) {
		named := &rewriter{chosen: always, changed: map[string]bool{}, constructors: constructors(job), named: true}
		lists := &rewriter{chosen: always, changed: changed, constructors: constructors(job)}
		return named.spec(text), lists.spec(text)
	})
}

func always() bool { return true }

// rewrites holds two forms of recorded specs against each other, which must mean the
// same programs. Of each layer and operator some specs are enough.
func rewrites(t *testing.T, suites []string, names, specs int, forms func(text string, job *program.Job, changed map[string]bool) (string, string)) {
	changed, tried, seen := map[string]bool{}, map[string]int{}, 0
	for _, suite := range suites {
		cases, err := accuracy.ReadFuzz(needs.File(t, "fuzz", suite+".json.gz"))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			var tree yaml.Node
			if err := yaml.Unmarshal([]byte(c.Spec), &tree); err != nil {
				t.Fatal(err)
			}
			enough := true
			for _, name := range heads(&tree) {
				tried[name]++
				enough = enough && tried[name] > 10
			}
			if enough {
				continue
			}
			job := built(c.Spec, c.Arch)
			if job == nil {
				t.Fatalf("%s of %s is refused", c.Name, suite)
			}
			a, b := forms(c.Spec, job, changed)
			if a == b {
				continue
			}
			seen++
			if one, other := exported(t, c, a), exported(t, c, b); one != other {
				t.Errorf("%s of %s: the programs\n%s\nand\n%s\nof\n%s\nand\n%s", c.Name, suite, one, other, a, b)
			}
		}
	}
	t.Logf("%d names in %d specs", len(changed), seen)
	if len(changed) < names || seen < specs {
		t.Errorf("%d names in %d specs were written in another way, expected at least %d in %d", len(changed), seen, names, specs)
	}
}

// heads lists the layers and operators among the keys and words of a tree.
func heads(n *yaml.Node) (names []string) {
	for _, c := range n.Content {
		if c.Kind == yaml.ScalarNode && (layers.Lookup(c.Value) != nil || aten.Lookup(c.Value) != nil) {
			names = append(names, c.Value)
		}
		names = append(names, heads(c)...)
	}
	return names
}

// exported is the script of a spec.
func exported(t *testing.T, c *accuracy.FuzzCase, text string) string {
	_, g, _, err := build(&accuracy.FuzzCase{Name: c.Name, Arch: c.Arch, Spec: text})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var b bytes.Buffer
	if err := exporttorch.Write(&b, g.Job, exporttorch.Options{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
