package main

import (
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// calls draws a program of another kind and writes most of its calls in other forms:
// tensors in argument position, arguments as lists in torch's order, inputs by name.
func calls(g *generator, seed uint64) (text, arch string) {
	if g.chance(0.5) {
		text, arch = g.breadthJob(seed)
	} else {
		text, arch = g.spec(seed)
	}
	job := built(text, arch)
	if job == nil {
		return text, arch
	}
	w := &rewriter{chosen: func() bool { return g.chance(0.8) }, constructors: constructors(job), changed: map[string]bool{}}
	return w.spec(text), arch
}

// rewriter writes the calls of a spec in other forms that mean the same.
type rewriter struct {
	chosen       func() bool          // draws whether a call is rewritten
	constructors map[*nn.Layer]string // of layers, in Python
	named        bool                 // arguments of layers by name, not as lists
	inputs       map[string][]string  // of blocks

	changed map[string]bool // layers and operators
}

// constructors are those of a job's layers, where one class is of a kind.
func constructors(job *program.Job) map[*nn.Layer]string {
	class, made := map[*nn.Layer]*program.Class{}, map[*nn.Layer]string{}
	for _, m := range job.Models {
		m.Root.Walk(func(_ string, c *program.Class) {
			if is := class[c.Layer]; is == nil {
				class[c.Layer], made[c.Layer] = c, c.Python
			} else if is != c {
				delete(made, c.Layer)
			}
		})
	}
	delete(made, nil)
	return made
}

// spec rewrites a whole spec.
func (w *rewriter) spec(text string) string {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		return text
	}
	w.inputs = map[string][]string{}
	w.blocks(&root)
	w.node(&root)
	out, err := yaml.Marshal(&root)
	if err != nil {
		return text
	}
	return string(out)
}

// blocks notes the inputs of blocks.
func (w *rewriter) blocks(n *yaml.Node) {
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && c.Value == "blocks" && n.Content[i+1].Kind == yaml.MappingNode {
			bs := n.Content[i+1].Content
			for k := 0; k+1 < len(bs); k += 2 {
				w.inputs[bs[k].Value] = []string{"x"}
				if ins := child(bs[k+1], "inputs"); ins != nil {
					w.inputs[bs[k].Value] = nil
					for _, in := range items(ins) {
						w.inputs[bs[k].Value] = append(w.inputs[bs[k].Value], in.Value)
					}
				}
			}
		}
		w.blocks(c)
	}
}

// child is the value of a key; nil if there is none.
func child(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// items are those of a list, or the node as the only one.
func items(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

func listOf(items []*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: items}
}

func pairs(names []string, values []*yaml.Node) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	for i, v := range values {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: names[i]}, v)
	}
	return n
}

// node rewrites what is below a node, then the node.
func (w *rewriter) node(n *yaml.Node) {
	for _, c := range n.Content {
		if c.Tag == "!!null" && c.Value == "" { // which would be written as a string
			*c = *pairs(nil, nil)
		}
		w.node(c)
	}
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		return
	}
	head := n.Content[0].Value
	switch l := layers.Lookup(head); {
	case l != nil:
		w.layer(n, l.Sigs()[0], w.constructors[&l.Is])
		var names []string
		for _, in := range l.InputNames() {
			names = append(names, strings.TrimSuffix(in, "?"))
		}
		w.byName(n, names)
	case aten.Lookup(head) != nil:
		w.operator(n, aten.Lookup(head).Sig)
	case head == "block":
		w.byName(n, w.inputs[n.Content[1].Value])
	}
}

// byName gives inputs their names, all of them or those behind the first.
func (w *rewriter) byName(n *yaml.Node, names []string) {
	ins := child(n, "inputs")
	if ins == nil || w.named || !w.chosen() {
		return
	}
	values := items(ins)
	k := 0
	if len(values) > 1 && w.chosen() {
		k = 1
	}
	if len(values) > len(names) || ins.Kind == yaml.MappingNode && child(ins, names[0]) != nil {
		return
	}
	for i, v := range values { // what an operator is called, too
		if aten.Lookup(names[i]) != nil || v.Kind == yaml.ScalarNode && strings.HasPrefix(v.Value, "*") {
			return
		}
	}
	named := pairs(names[k:], values[k:])
	if k > 0 {
		named = listOf([]*yaml.Node{values[0], named})
	}
	for i := range n.Content {
		if n.Content[i] == ins {
			n.Content[i] = named
		}
	}
}

// layer gives a layer the arguments of its constructor, as a list or by name.
func (w *rewriter) layer(n *yaml.Node, sig *op.Sig, call string) {
	arg := n.Content[1]
	if call == "" || !w.chosen() {
		return
	}
	for i := 0; arg.Kind == yaml.MappingNode && i < len(arg.Content); i += 2 {
		if sig.Find(arg.Content[i].Value) == nil { // of the call, not of the constructor
			return
		}
	}
	args := argumentList(sig, call)
	if args == nil {
		return
	}
	if w.named {
		var names []string
		for i := range sig.Params {
			names = append(names, sig.Params[i].Name)
		}
		args = pairs(names, args.Content)
	}
	n.Content[1] = args
	w.changed[n.Content[0].Value] = true
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
	list, given := listOf(nil), map[string]*yaml.Node{}
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
	// Two integers may be one argument.
	if len(given) > 0 || len(list.Content) == 0 || len(list.Content) == 2 && sig.Params[0].Kind == op.KInts {
		return nil
	}
	return list
}

// operator gives an operator all its arguments as a list, or its only one as that.
func (w *rewriter) operator(n *yaml.Node, sig *op.Sig) {
	if len(sig.Params) == 0 || !sig.Params[0].IsTensor() || sig.Params[0].Star || w.named {
		return
	}
	given, ok := w.given(n.Content[1], child(n, "inputs"), sig)
	if !ok || !w.chosen() {
		return
	}
	var list []*yaml.Node
	for i := range sig.Params {
		p := &sig.Params[i]
		v := given[p.Name]
		if v == nil {
			break
		}
		if delete(given, p.Name); p.Star && v.Kind == yaml.SequenceNode && w.chosen() {
			list = append(list, v.Content...)
		} else {
			list = append(list, v)
		}
	}
	if len(given) > 0 || len(list) == 0 {
		return
	}
	arg := listOf(list)
	if len(list) == 1 && len(sig.Params) == 1 && list[0].Kind != yaml.SequenceNode && w.chosen() { // tanh: x
		arg = list[0]
	}
	rest := []*yaml.Node{n.Content[0], arg}
	for i := 2; i < len(n.Content); i += 2 {
		if n.Content[i].Value != "inputs" {
			rest = append(rest, n.Content[i], n.Content[i+1])
		}
	}
	n.Content = rest
	w.changed[n.Content[0].Value] = true
}

// given are the arguments of an operator's call, the tensors of its inputs among them,
// by name; false if some stand for themselves or come from the previous value.
func (w *rewriter) given(arg, inputs *yaml.Node, sig *op.Sig) (map[string]*yaml.Node, bool) {
	given := map[string]*yaml.Node{}
	if arg.Kind == yaml.MappingNode {
		for i := 0; i < len(arg.Content); i += 2 {
			p := sig.Find(arg.Content[i].Value)
			if p == nil || p.KwOnly {
				return nil, false
			}
			given[p.Name] = arg.Content[i+1]
		}
	}
	if inputs != nil {
		ins := items(inputs)
		for i := range sig.Params {
			p := &sig.Params[i]
			switch {
			case !p.IsTensor() || given[p.Name] != nil || len(ins) == 0:
			case p.Kind == op.KTensors:
				if given[p.Name] = inputs; inputs.Kind == yaml.MappingNode {
					return nil, false
				}
				ins = nil
			default:
				given[p.Name], ins = ins[0], ins[1:]
			}
		}
	}
	if given[sig.Params[0].Name] == nil {
		return nil, false
	}
	if arg.Kind == yaml.MappingNode {
		return given, true
	}
	var rest []*op.Param
	for i := range sig.Params {
		if p := &sig.Params[i]; given[p.Name] == nil && !p.KwOnly {
			rest = append(rest, p)
		}
	}
	values := items(arg)
	switch {
	case len(rest) == 0:
		return nil, false
	case arg.Kind != yaml.SequenceNode && rest[0].IsTensor():
		return nil, false
	case arg.Kind == yaml.SequenceNode && (rest[0].Star || rest[0].Kind == op.KInts && numbers(values)):
		given[rest[0].Name] = arg
		return given, true
	case len(values) > len(rest):
		return nil, false
	}
	for i, v := range values {
		given[rest[i].Name] = v
	}
	return given, true
}

// numbers reports whether all items are integers.
func numbers(items []*yaml.Node) bool {
	for _, it := range items {
		if it.Tag != "!!int" {
			return false
		}
	}
	return true
}
