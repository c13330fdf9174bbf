package python

import "github.com/memplan/memplan/internal/program"

// Freeze marks the cells of the parameters of m that do not require grad. path
// is that of root from the model.
func Freeze(root *Module, path string, m *program.Model) {
	for i, c := range root.Params { // one that is tied may have another name where it comes from
		c.Frozen = c.Frozen || m.Freezes(program.Join(path, root.Class.Params[i].Name))
	}
	for i, ch := range root.Children {
		Freeze(ch, program.Join(path, root.Class.Children[i].Path), m)
	}
}
