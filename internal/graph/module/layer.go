package module

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
)

// Layer is one module of torch.nn.
type Layer struct {
	// Sig is the constructor. Parameters marked "infer" follow from the input
	// and are checked if given.
	Sig string
	// Forward lists further arguments of forward that are no tensors, as a
	// signature "forward(need_weights: bool = True)".
	Forward string
	// Inputs names the tensors that forward takes; "?" marks optional ones, and
	// those after "*" are passed by keyword. The default is "input".
	Inputs string
	// Tuples says that inputs may be lists of tensors.
	Tuples bool
	// Is says what other packages must know of it; its name is that of Sig.
	Is nn.Layer
	// Alone gives inputs that suit the arguments, for which a module is made that
	// nothing calls; nil of layers that hold nothing.
	Alone func(b *Builder) []*op.Tensor
	// Build makes parameters and the body of forward.
	Build func(b *Builder)

	sigs    [2]*op.Sig
	inputs  []string
	keyword int // the first input that is passed by keyword
}

// New reads the signatures of a layer; one that does not parse is a programming
// error.
func New(l Layer) *Layer {
	p := &l
	p.sigs[1] = &op.Sig{}
	for i, text := range []string{l.Sig, l.Forward} {
		if i == 1 && text == "" {
			continue
		}
		var err error
		if p.sigs[i], err = op.ParseSig(text); err != nil {
			panic("module: " + err.Error())
		}
	}
	p.inputs = []string{"input"}
	if l.Inputs != "" {
		p.inputs = strings.Fields(l.Inputs)
	}
	if p.keyword = slices.Index(p.inputs, "*"); p.keyword >= 0 {
		p.inputs = slices.Delete(p.inputs, p.keyword, p.keyword+1)
	} else {
		p.keyword = len(p.inputs)
	}
	p.Is.Python = p.sigs[0].Python
	return p
}

// Name is what specs call the layer.
func (l *Layer) Name() string { return l.sigs[0].Key }

// Sigs are the signatures of the constructor and of what forward takes beside
// tensors.
func (l *Layer) Sigs() []*op.Sig { return l.sigs[:] }

// InputNames are the tensors that forward takes; "?" marks optional ones.
func (l *Layer) InputNames() []string { return l.inputs }

// ByKeyword reports whether input i is passed by keyword.
func (l *Layer) ByKeyword(i int) bool { return i >= l.keyword }

// Takes reports whether forward takes a tensor of that name.
func (l *Layer) Takes(name string) bool {
	for _, i := range l.inputs {
		if strings.TrimSuffix(i, "?") == name {
			return true
		}
	}
	return false
}

// Required counts the inputs that must be given.
func (l *Layer) Required() int {
	n := 0
	for _, i := range l.inputs {
		if !strings.HasSuffix(i, "?") {
			n++
		}
	}
	return n
}
