package techniques

import (
	"regexp"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// Axolotl's fused kernels of LoRA (axolotl/kernels/lora.py): functions of autograd that
// compute the layers of an MLP or an attention and their adapters at once, without PEFT's
// layers. They save the input, the adapters in its type, and of an MLP what gate_proj and
// up_proj compute. Their forward and backward passes run under the autocast of the
// forward pass, which finds nothing to convert: all they multiply has the input's type.

// fusable are the modules that monkeypatch/lora_kernels.py looks at: those of the layers
// of the model, not of what encodes images.
var fusable = regexp.MustCompile(`^(?:model\.|language_model\.|model\.language_model\.)?layers\.\d+\.(self_attn|mlp)$`)

// kernels are the names of those that the spec asks for. Those that nothing asks for are
// not for mixtures of experts before PyTorch 2.9 (utils/schemas/config.py:
// check_auto_enable_lora_kernels).
func (j *Job) kernels(m *Model, p *spec.PEFT) (names []string) {
	for _, k := range p.Kernels {
		names = append(names, k.V)
	}
	if !slices.Contains(names, "auto") {
		return names
	}
	experts := strings.Contains(m.Type, "moe")
	for _, key := range []string{"num_local_experts", "num_experts"} {
		n, _ := m.Params.Lookup(key)
		experts = experts || n != nil && n != int64(0)
	}
	if experts && !j.Torch.Has(torchver.GroupedExperts) {
		return nil
	}
	return []string{"mlp", "qkv", "o"}
}

// What a rewritten attention calls.
const (
	applyQKV = "apply_qkv"
	applyO   = "apply_o"
)

// fuse replaces what modules with adapters compute by the kernels that the spec names.
// It returns the modules of root, which are the model's or those of its evaluation, and
// says of the model's what is left out.
func (j *Job) fuse(m *Model, root *program.Class, a *program.Adapters, evaluation bool) (out []program.Fused) {
	if len(a.Kernels) == 0 {
		return nil
	}
	on := map[string]bool{}
	for _, k := range a.Kernels {
		on[k] = true
	}
	adapted := map[string]*program.Class{}
	for _, l := range a.Layers {
		adapted[l.Path] = l.Class
	}
	type key struct {
		class  *program.Class
		layers [4]layerKey
	}
	known := map[key]*program.Func{}
	rewrites, linear := on["qkv"] || on["o"], false
	rewritten := !rewrites
	root.Walk(func(path string, c *program.Class) {
		linear = linear || rewrites && adapted[path+".in_proj_qkv"] != nil
		part := fusable.FindStringSubmatch(path)
		if part == nil {
			return
		}
		// They are for layers with adapters alone.
		of := func(names ...string) []*program.Class {
			var layers []*program.Class
			for _, n := range names {
				if l := adapted[path+"."+n]; l != nil {
					layers = append(layers, l)
				}
			}
			if len(layers) < len(names) {
				return nil
			}
			return layers
		}
		var layers [4]*program.Class
		switch {
		case part[1] == "mlp" && on["mlp"]:
			if copy(layers[:], of("gate_proj", "up_proj", "down_proj")) == 0 {
				return
			}
		case part[1] == "self_attn" && rewrites && rewritable(m, c):
			rewritten = true
			if on["qkv"] {
				copy(layers[:], of(projections(c)...))
			}
			if on["o"] {
				copy(layers[3:], of("o_proj"))
			}
		default:
			return
		}
		k := key{class: c}
		for i, l := range layers {
			if l != nil {
				k.layers[i] = keyOf(l)
			}
		}
		if known[k] == nil {
			known[k] = j.fused(path, c, layers, j.Spec.PEFT.At)
		}
		out = append(out, program.Fused{Path: path, Class: c, Forward: known[k]})
	})
	if evaluation {
		return out
	}
	asked := func(format string, args ...any) {
		*j.NotModelled = append(*j.NotModelled, note.Asked.New("peft.kernels: "+format, args...).Of("peft.kernels"))
	}
	if !rewritten {
		a.Kernels = nil
		asked("Axolotl stops at this model's attention, which it cannot rewrite; lora_qkv_kernel: false and lora_o_kernel: false prevent that; planned with PEFT's layers")
		return nil
	}
	if linear {
		asked("the fused kernels for projections of linear attention; planned with PEFT's layers")
	}
	if len(out) == 0 {
		*j.Warnings = append(*j.Warnings, note.FitsNothing.New("peft.kernels: no layer that Axolotl's fused kernels are for has an adapter").Of("peft.kernels"))
	}
	return out
}

// rewritable reports whether Axolotl replaces an attention's forward: it looks for one of a few
// texts in its source (QKV_PATCHES), in which each projection is viewed and transposed at once,
// or of the queries the halves are taken apart, and values come right after keys. The attention of Gemma 4 is one of Axolotl's own.
func rewritable(m *Model, c *program.Class) bool {
	if c.Child("q_proj") < 0 || c.Child("k_proj") < 0 || c.Child("o_proj") < 0 {
		return false
	}
	if strings.HasPrefix(m.Type, "gemma4") {
		return true
	}
	at := map[string]int{} // statements, from 1 on
	for i, st := range c.Forward.Body {
		if e := st.Value; e != nil && e.Kind == program.CallOp && (e.Row == aten.Transpose || e.Row == aten.Chunk) {
			e.Walk(func(e *program.Expr) {
				if e.Kind == program.CallMod {
					at[c.Children[e.Child].Path] = i + 1
				}
			})
		}
	}
	return at["q_proj"] > 0 && at["k_proj"] > 0 && at["v_proj"] == at["k_proj"]+1
}

// layerKey is what a kernel depends on of a layer at a place in a class.
type layerKey struct {
	r         int64
	a, b      tensor.DType
	dropout   float64
	quantized program.Quantized
	dora      bool
}

func keyOf(l *program.Class) (k layerKey) {
	for _, ch := range l.Children {
		switch ch.Path {
		case program.BaseLayer:
			if q := ch.Class.Quantized; q != nil {
				k.quantized = *q
			}
		case program.Magnitude:
			k.dora = true
		case "lora_A":
			k.r, k.a = ch.Class.Params[0].Size[0], ch.Class.Params[0].DType
		case "lora_B":
			k.b = ch.Class.Params[0].DType
		}
	}
	if e := dropoutOf(l); e != nil {
		k.dropout = e.OpArgs.(*aten.DropoutArgs).P
	}
	return k
}

// dropoutOf is the dropout in front of an adapter, nil if it has none.
func dropoutOf(l *program.Class) *program.Expr {
	if e := l.Children[l.Child("lora_dropout")].Class.Forward.Body[0].Value; e.Row == aten.Dropout {
		return e
	}
	return nil
}

// FuseEvaluation does the same to the models of an evaluation.
func (j *Job) FuseEvaluation() {
	if e := j.Job.Eval; e != nil {
		for _, s := range e.Sizes() {
			j.fuseSized(s)
		}
	}
}

func (j *Job) fuseSized(e *program.Sized) {
	for _, m := range j.Job.Models {
		if root := e.Models[m.Name]; root != nil && m.Adapters != nil {
			spec.Try(func() {
				f := append(j.fuse(j.model(m.Name), root, m.Adapters, true), j.computedIn(root, m.Adapters)...)
				if m.Adapters.Regularized != nil {
					f = append(f, j.regularized(root, m.Adapters, j.Spec.PEFT.At))
				}
				if f != nil {
					e.Fused[m.Name] = f
				}
			})
		}
	}
}

// fused is the forward of a module whose layers have adapters: gate_proj, up_proj and
// down_proj of an MLP, or q_proj, k_proj, v_proj and o_proj of an attention.
func (j *Job) fused(path string, c *program.Class, layers [4]*program.Class, at spec.Span) *program.Func {
	defer j.replacing(at, "kernels: "+path)
	env := *j.Env
	own := *c
	b := &fusion{replacement{module.NewBuilder(&env, &own, "X"), j.Batch}}
	if strings.HasSuffix(path, ".mlp") {
		gate, up, down := b.layer("gate_proj", layers[0]), b.layer("up_proj", layers[1]), b.layer("down_proj", layers[2])
		b.Finish(b.mlp(b.sequence(gate), gate, up, down))
		b.Func.Remedy = remedy("mlp")
		return b.Func
	}
	f := *c.Forward
	f.Slots, f.Body = slices.Clone(f.Slots), slices.Clone(f.Body)
	f.Remedy = remedy("qkv")
	if layers[0] == nil {
		b.inOrder(&f, c)
	} else {
		var of []*fusedLayer
		for i, name := range projections(c) {
			of = append(of, b.layer(name, layers[i]))
		}
		b.attention(&f, c, of)
	}
	b.output(&f, c, layers[3])
	return &f
}

// remedy says how a job goes without a kernel that fails: Axolotl sets none by itself if
// the file sets one (check_auto_enable_lora_kernels).
func remedy(kernel string) string {
	return "Axolotl's fused kernels of LoRA are at work here: write lora_" + kernel + "_kernel: false, or peft.kernels without " + kernel
}

// fusion makes the functions of one module.
type fusion struct{ replacement }

// inOrder computes the projections first, as the rewritten attention does where not
// all of them have adapters (original_apply_qkv).
func (b *fusion) inOrder(f *program.Func, c *program.Class) {
	b.projected(f, c, func(x *program.Expr) value.Value {
		in, _ := linearSize(c.Children[c.Child("q_proj")].Class)
		return b.Inline(applyQKV, []string{"hidden_states"}, []value.Value{{Expr: x, Meta: b.input(1, in).Meta}}, func(f *module.Builder, in []value.Value) (out []value.Value) {
			for _, name := range projections(c) {
				_, n := linearSize(c.Children[c.Child(name)].Class)
				out = append(out, f.Let(name, f.CallChild(c.Child(name), []value.Value{b.input(1, n)}, in[0])))
			}
			return out
		})
	})
}

// projections are the layers that LoRA_QKV takes the place of. Without v_proj, the values
// are what k_proj computes.
func projections(c *program.Class) []string {
	names := []string{"q_proj", "k_proj", "v_proj"}
	if c.Child("v_proj") < 0 {
		names = names[:2]
	}
	return names
}

// projected puts one call in the place of those of the projections, before all that is
// done to what they return.
func (b *fusion) projected(f *program.Func, c *program.Class, call func(x *program.Expr) value.Value) {
	var slots []int
	var first int
	var x *program.Expr
	for i, name := range projections(c) {
		at, call := b.find(f, c, name)
		if i == 0 {
			first, x = at, call.Args[0]
		}
		if st := f.Body[at]; st.Kind != program.Assign || len(st.Targets) == 0 || len(call.Args) != 1 || call.Args[0].Kind != program.Local || call.Args[0].Slot != x.Slot {
			b.Fail("", "Axolotl's kernels do not fit this attention: its projections are not computed one after the other")
		}
		slots = append(slots, f.Body[at].Targets[0])
		f.Body[at].Value = replaced(f.Body[at].Value, call, &program.Expr{Kind: program.Local, Slot: slots[i]})
	}
	f.Body = slices.Insert(f.Body, first, program.Stmt{Kind: program.Assign, Unpack: true, Targets: slots, Value: call(x).Expr, Line: f.Body[first].Line})
}

// find is the statement that calls a child, and the call.
func (b *fusion) find(f *program.Func, c *program.Class, name string) (int, *program.Expr) {
	child := c.Child(name)
	for i := range f.Body {
		var found *program.Expr
		f.Body[i].Value.Walk(func(e *program.Expr) {
			if e.Kind == program.CallMod && e.Child == child {
				found = e
			}
		})
		if found != nil {
			return i, found
		}
	}
	b.Fail("", "%s is not called by the module that it is in", name)
	return 0, nil
}

// replaced is an expression in which another one takes the place of old.
func replaced(e, old, by *program.Expr) *program.Expr {
	if e == old {
		return by
	}
	out := *e
	out.Args = make([]*program.Expr, len(e.Args))
	for i, a := range e.Args {
		out.Args[i] = replaced(a, old, by)
	}
	return &out
}
