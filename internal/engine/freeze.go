package engine

import "github.com/memplan/memplan/internal/program"

// freeze marks the cells of the parameters of m that do not require grad. path
// is that of root from the model.
func freeze(root *module, path string, m *program.Model) {
	for i, c := range root.params { // one that is tied may have another name where it comes from
		c.frozen = c.frozen || m.Freezes(program.Join(path, root.class.Params[i].Name))
	}
	for i, ch := range root.children {
		freeze(ch, program.Join(path, root.class.Children[i].Path), m)
	}
}
