package python

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/trace"
)

// reading is a tensor of a checkpoint while it is read: one of the model, or a part of one.
type reading struct {
	key []string // of its name, by which it is sorted
	of  *joining
	T   *op.Tensor // the part on the device
}

// joining is a tensor of the model and what is read for it.
type joining struct {
	stored
	parts []*reading // those of one list after those of another; one, if it is stored as it is
	lists int        // of which one tensor each is stacked, which then are concatenated; 0: it is stored as it is
	done  bool       // it has been read
}

// inCheckpoint lists what a checkpoint has of tensors, in the natural order of its names, and the
// tensors in the order in which these come.
func inCheckpoint(tensors []stored, l *program.Loading) (read []*reading, order []*joining) {
	for _, t := range tensors {
		j := &joining{stored: t}
		var names []string
		if t.param {
			names = l.Names.Joins(t.m.path, t.cell.Decl)
		}
		if j.lists = len(names); names == nil {
			j.parts = []*reading{{key: strings.Split(l.Names.Stored(t.name), "."), of: j}}
		}
		for _, name := range names {
			for e := range t.cell.Decl.Size[0] {
				path, _, _ := strings.Cut(t.name, t.cell.Decl.Name)
				key := l.Names.Stored(path + strconv.FormatInt(e, 10) + "." + name + ".weight")
				j.parts = append(j.parts, &reading{key: strings.Split(key, "."), of: j})
			}
		}
		read = append(read, j.parts...)
	}
	slices.SortStableFunc(read, func(a, b *reading) int { return slices.CompareFunc(a.key, b.key, natural) })
	seen := map[*joining]bool{}
	for _, r := range read {
		if !seen[r.of] {
			seen[r.of] = true
			order = append(order, r.of)
		}
	}
	return read, order
}

// natural compares two parts of names: numbers come before words (dot_natural_key).
func natural(a, b string) int {
	switch x, y := isNumber(a), isNumber(b); {
	case x && y:
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	case x:
		return -1
	case y:
		return 1
	}
	return strings.Compare(a, b)
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// readNow reads a tensor of a checkpoint that has not been read.
func (p *Interp) readNow(r *reading, l *program.Loading) {
	t := r.of
	p.Layer = t.cell.Layer
	switch q := t.m.Class.Quantized; {
	case r.T != nil || t.done:
	case t.lists > 0:
		size := slices.Clone(t.cell.Decl.Size[1:])
		size[0] /= int64(t.lists)
		r.T = p.Leaf(trace.Temporaries, t.readIn(l), false, size...)
	case q != nil && t.cell == t.m.Params[0]:
		t.done = true
		p.loadQuantized(t.m, l)
	default:
		t.done = true
		p.read(t.stored, l)
	}
}

// join makes a tensor of its parts, which are freed from the last on: each list is stacked
// (MergeModulelist), and several are concatenated (Concatenate).
func (p *Interp) join(t *joining, l *program.Loading) {
	if t.lists == 0 {
		return
	}
	p.Layer = t.cell.Layer
	d, size := t.readIn(l), slices.Clone(t.cell.Decl.Size)
	experts := int(size[0])
	size[1] /= int64(t.lists)
	var stacks []*op.Tensor
	for i := range t.lists {
		list := t.parts[i*experts : (i+1)*experts]
		if t.lists == 1 {
			p.read(t.stored, l)
		} else {
			stacks = append(stacks, p.Leaf(trace.Temporaries, d, false, size...))
		}
		for _, r := range slices.Backward(list) {
			p.Drop(r.T)
		}
	}
	if t.lists == 1 {
		return
	}
	p.read(t.stored, l)
	for _, s := range stacks {
		p.Drop(s)
	}
}
