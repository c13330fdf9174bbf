package exporttorch_test

import (
	"bytes"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/memplan/memplan/internal/accuracy"
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/exporttorch"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/specs"
)

// TestOperatorsInOrder writes the calls of operators that were recorded with their
// arguments by name, or behind inputs, as lists in torch's own order: they are the same
// calls.
func TestOperatorsInOrder(t *testing.T) {
	suites := []string{"operators", "losses", "layouts", "hf_ops", "vision_ops", "fuzz", "rnn", "checkpoint"}
	rewrites(t, suites, 150, 300, func(root *yaml.Node, _ *program.Job, list bool) []string {
		if !list {
			return nil
		}
		return inOrder(root)
	})
}

// TestLayersInOrder writes the arguments of layers as lists in the order of torch's
// constructors, with what is inferred, as the exported script has it: they are the same
// calls as those with these arguments by name.
func TestLayersInOrder(t *testing.T) {
	suites := []string{"operators", "losses", "layouts", "vision_ops", "fuzz", "rnn", "unseen", "unseen2", "ok"}
	rewrites(t, suites, 70, 300, func(root *yaml.Node, job *program.Job, list bool) []string {
		made := map[string]string{} // the constructor of a layer; "" if there are several
		for _, m := range job.Models {
			m.Root.Walk(func(_ string, c *program.Class) {
				name := strings.TrimPrefix(strings.SplitN(c.Python, "(", 2)[0], "nn.")
				if is, ok := made[name]; ok && is != c.Python {
					made[name] = ""
				} else {
					made[name] = c.Python
				}
			})
		}
		return constructed(root, made, list)
	})
}

// rewrites changes recorded specs, with lists or without, which must mean the same
// programs then, and counts what change says it did. Of each name some specs are enough.
func rewrites(t *testing.T, suites []string, names, specs int, change func(root *yaml.Node, job *program.Job, list bool) []string) {
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
			job, _, err := scriptOf(c.Name, c.Spec)
			if err != nil {
				t.Fatal(err)
			}
			var texts, scripts [2]string
			var did []string
			for i, list := range []bool{false, true} {
				var root yaml.Node
				if err := yaml.Unmarshal([]byte(c.Spec), &root); err != nil {
					t.Fatal(err)
				}
				did = change(&root, job, list)
				text, err := yaml.Marshal(&root)
				if err != nil {
					t.Fatal(err)
				}
				texts[i] = string(text)
				if !list && len(did) == 0 {
					texts[i] = c.Spec
				}
				if _, scripts[i], err = scriptOf(c.Name, texts[i]); err != nil {
					t.Fatalf("%s of %s: %v\n%s", c.Name, suite, err, texts[i])
				}
			}
			if len(did) == 0 {
				continue
			}
			if scripts[0] != scripts[1] {
				t.Errorf("%s of %s: the programs\n%s\nand\n%s\nof\n%s\nand\n%s", c.Name, suite, scripts[0], scripts[1], texts[0], texts[1])
			}
			for _, n := range did {
				changed[n] = true
			}
			seen++
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

// scriptOf is the job of a spec, and its script.
func scriptOf(name, text string) (*program.Job, string, error) {
	s, err := spec.Parse(name, []byte(text), spec.Options{})
	if err != nil {
		return nil, "", err
	}
	env := op.Env{Arch: 80, SMs: 108, ThreadsPerSM: 2048, Torch: torchver.Default}
	g, err := graph.Build(s, graph.Options{Env: env, Preset: specs.Preset, Presets: specs.Names()})
	if err != nil {
		return nil, "", err
	}
	var b bytes.Buffer
	err = exporttorch.Write(&b, g.Job, exporttorch.Options{})
	return g.Job, b.String(), err
}

// constructed gives the entries of a tree that make layers the arguments of their
// constructors, as a list or by name, and returns the layers.
func constructed(n *yaml.Node, made map[string]string, list bool) (names []string) {
	for i, c := range n.Content {
		if c.Tag == "!!null" && c.Value == "" { // which would be written as a string
			*c = yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		}
		names = append(names, constructed(c, made, list)...)
		if n.Kind != yaml.MappingNode || i%2 == 1 {
			continue
		}
		l := layers.Lookup(c.Value)
		if l == nil || made[c.Value] == "" {
			continue
		}
		arg := n.Content[i+1]
		if arg.Kind == yaml.MappingNode {
			own := false
			for k := 0; k < len(arg.Content); k += 2 {
				own = own || l.Sigs()[0].Find(arg.Content[k].Value) == nil
			}
			if own { // of the call, not of the constructor
				continue
			}
		}
		args := argumentList(l.Sigs()[0], made[c.Value])
		if args == nil {
			continue
		}
		if !list {
			args = byName(l.Sigs()[0], args)
		}
		n.Content[i+1] = args
		names = append(names, c.Value)
	}
	return names
}

// argumentList is the list of arguments of a constructor's call in Python: nn.Conv2d(3,
// 8, 3, padding=1) is [3, 8, 3, 1, 1].
func argumentList(sig *op.Sig, call string) *yaml.Node {
	_, text, _ := strings.Cut(strings.TrimSuffix(call, ")"), "(")
	text = strings.NewReplacer("(", "[", ",)", "]", ")", "]", "True", "true", "False", "false", "None", "null", "=", ": ").Replace(text)
	var values yaml.Node
	if err := yaml.Unmarshal([]byte("["+text+"]"), &values); err != nil {
		return nil
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	given := map[string]*yaml.Node{}
	for _, v := range values.Content[0].Content {
		if v.Kind == yaml.MappingNode {
			given[v.Content[0].Value] = v.Content[1]
		} else {
			list.Content = append(list.Content, v)
		}
	}
	for i := len(list.Content); i < len(sig.Params) && len(given) > 0; i++ {
		p := &sig.Params[i]
		v := given[p.Name]
		delete(given, p.Name)
		if v == nil {
			v = &yaml.Node{}
			if err := v.Encode(p.Default); err != nil {
				return nil
			}
		}
		if p.KwOnly {
			return nil
		}
		list.Content = append(list.Content, v)
	}
	if len(given) > 0 || len(list.Content) == 0 {
		return nil
	}
	if len(list.Content) == 2 && sig.Params[0].Kind == op.KInts { // which may be one argument
		return nil
	}
	return list
}

// byName gives a list of arguments their names.
func byName(sig *op.Sig, list *yaml.Node) *yaml.Node {
	args := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	for i, v := range list.Content {
		args.Content = append(args.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: sig.Params[i].Name}, v)
	}
	return args
}

// inOrder gives the entries of a tree that call operators their arguments as a list,
// where there is one of them before each that is given, and returns the operators.
func inOrder(n *yaml.Node) (names []string) {
	for _, c := range n.Content {
		if c.Tag == "!!null" && c.Value == "" { // which would be written as a string
			*c = yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		}
		names = append(names, inOrder(c)...)
	}
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		return names
	}
	name := n.Content[0].Value
	s := aten.Lookup(name)
	if s == nil || layers.Lookup(name) != nil {
		return names
	}
	given := map[string]*yaml.Node{}
	var tensors []string
	var first *op.Param // that is no tensor
	for i := range s.Sig.Params {
		switch p := &s.Sig.Params[i]; {
		case p.Star || p.Kind == op.KTensors:
			return names
		case p.IsTensor():
			tensors = append(tensors, p.Name)
		case first == nil:
			first = p
		}
	}
	switch arg := n.Content[1]; {
	case arg.Kind == yaml.MappingNode:
		for i := 0; i < len(arg.Content); i += 2 {
			if p := s.Sig.Find(arg.Content[i].Value); p == nil || p.KwOnly {
				return names
			}
			given[arg.Content[i].Value] = arg.Content[i+1]
		}
	case arg.Kind == yaml.SequenceNode:
		return names // is one
	default:
		if len(tensors) != 1 || first == nil || first.KwOnly {
			return names
		}
		given[first.Name] = arg
	}
	rest := n.Content[2:]
	for i := 2; i < len(n.Content); i += 2 {
		if n.Content[i].Value != "inputs" {
			continue
		}
		ins := []*yaml.Node{n.Content[i+1]}
		if ins[0].Kind == yaml.SequenceNode {
			ins = ins[0].Content
		}
		for _, t := range tensors {
			if len(ins) > 0 && given[t] == nil {
				given[t], ins = ins[0], ins[1:]
			}
		}
		rest = append(append([]*yaml.Node(nil), n.Content[2:i]...), n.Content[i+2:]...)
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, p := range s.Sig.Params {
		if v := given[p.Name]; v != nil {
			list.Content = append(list.Content, v)
			delete(given, p.Name)
			continue
		}
		break
	}
	if len(given) > 0 || len(list.Content) == 0 || !s.Sig.Params[0].IsTensor() {
		return names
	}
	n.Content = append([]*yaml.Node{n.Content[0], list}, rest...)
	return append(names, name)
}
