package spec

import (
	"strings"

	"gopkg.in/yaml.v3"
)

// Flow writes a value as YAML in one line.
func (v *Value) Flow() string {
	n := v.node(0)
	var flow func(n *yaml.Node)
	flow = func(n *yaml.Node) {
		if n.Kind != yaml.ScalarNode {
			n.Style = yaml.FlowStyle
		}
		for _, c := range n.Content {
			flow(c)
		}
	}
	flow(n)
	text, err := yaml.Marshal(n)
	if err != nil {
		return v.Describe()
	}
	return strings.TrimSpace(string(text))
}
