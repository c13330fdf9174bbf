package compiled

import (
	"strings"

	"go.starlark.net/syntax"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/inductor"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// signatures are the arguments of operators that Inductor calls by their places
// (aten/src/ATen/native/native_functions.yaml; of extern_kernels, torch/_inductor/kernel).
var signatures = map[string]string{
	"mm": "self mat2", "bmm": "self mat2", "addmm": "self mat1 mat2", "bias_addmm": "self mat1 mat2", "baddbmm": "self batch1 batch2",
	"convolution":          "input weight bias stride padding dilation transposed output_padding groups",
	"convolution_backward": "grad_output input weight bias_sizes stride padding dilation transposed output_padding groups output_mask",

	"_scaled_dot_product_flash_attention":              "query key value dropout_p is_causal return_debug_mask",
	"_scaled_dot_product_flash_attention_backward":     "grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal philox_seed philox_offset",
	"_scaled_dot_product_efficient_attention":          "query key value attn_bias compute_log_sumexp dropout_p is_causal",
	"_scaled_dot_product_efficient_attention_backward": "grad_out_ query key value attn_bias out logsumexp philox_seed philox_offset dropout_p grad_input_mask is_causal",
	"_scaled_dot_product_cudnn_attention":              "query key value attn_bias compute_log_sumexp dropout_p is_causal return_debug_mask",
	"_scaled_dot_product_cudnn_attention_backward":     "grad_out query key value out logsumexp philox_seed philox_offset attn_bias cum_seq_q cum_seq_k max_q max_k dropout_p is_causal",

	"topk": "self k dim largest sorted", "sort": "self dim descending", "sort.stable": "self stable dim descending", "cumsum": "self dim",
	"index_put_": "self indices values accumulate", "embedding_dense_backward": "grad_output indices num_weights padding_idx scale_grad_by_freq",
}

// written are operators that write into their arguments and allocate nothing.
var written = map[string]bool{"randint": true, "copy_": true, "set_": true, "fill_": true, "zero_": true}

// called is a call of an operator.
type called struct {
	name, overload string
	values         aten.Values
	tensors        map[string][]*op.Tensor
	order          []string
	out            *op.Tensor
}

// operator calls an operator, on line i, by its row.
func (r *run) operator(i int, name string, x *syntax.CallExpr) value {
	// Checkpoints keep the state of random numbers, in host memory (torch/_prims/rng_prims.py).
	switch _, higher, _ := strings.Cut(name, "higher_order."); {
	case higher == "run_and_save_rng_state" && len(x.Args) > 0:
		return value{list: []value{{}, r.within(i, x.Args)}}
	case higher == "run_with_rng_state" && len(x.Args) > 1:
		return r.within(i, x.Args[1:])
	}
	c := r.arguments(name, x)
	defer func() {
		for _, n := range c.order {
			r.p.Drop(c.tensors[n]...)
		}
		r.p.Drop(c.out)
	}()
	if written[c.name] {
		return value{}
	}
	var made []*op.Tensor
	outer := r.p.Push()
	r.p.Env().GradMode = false
	err := r.p.Try(func() { made = r.row(c) })
	r.p.Pop(outer)
	if c.out != nil {
		r.p.Drop(made...)
	}
	if err != nil || made == nil {
		why := "no row of that name and arguments"
		if err != nil {
			why = err.Error()
		}
		r.p.Warn(note.CompiledGraph.New("train.compile: %s (%s:%d) counts as its results alone, what its kernels take besides is not known: %s", name, r.File, r.line, why).Of("train.compile"))
		if c.out != nil {
			return value{}
		}
		v := r.asserted(i, c)
		if v.t == nil && v.list == nil && len(r.g.Code[i].Names) > 0 {
			r.fail(r.line, "%s: neither is it known what it allocates (%s) nor does the code say it", name, why)
		}
		return v
	}
	if c.out != nil {
		return value{}
	}
	if r.single(i) {
		r.p.Drop(made[1:]...)
		return value{t: made[0]}
	}
	v := value{}
	for _, t := range made {
		v.list = append(v.list, value{t: t})
	}
	return v
}

// within calls the operator that is the first of args with the others.
func (r *run) within(i int, args []syntax.Expr) value {
	return r.operator(i, inductor.Dotted(args[0]), &syntax.CallExpr{Fn: args[0], Args: args[1:]})
}

// single reports whether the name that line i binds is used as a tensor.
func (r *run) single(i int) bool {
	names := r.g.Code[i].Names
	if len(names) != 1 {
		return false
	}
	for _, l := range r.g.Code[i+1:] {
		if x, ok := l.Expr.(*syntax.IndexExpr); ok && inductor.Dotted(x.X) == names[0] {
			return false
		}
	}
	return true
}

// arguments evaluates the arguments of a call.
func (r *run) arguments(full string, x *syntax.CallExpr) *called {
	c := &called{values: aten.Values{}, tensors: map[string][]*op.Tensor{}}
	name := full
	for _, p := range []string{"torch.ops.", "extern_kernels.", "aten."} {
		name = strings.TrimPrefix(name, p)
	}
	c.name, c.overload, _ = strings.Cut(name, ".")
	if c.overload == "default" {
		c.overload = ""
	}
	text, ok := signatures[c.name+"."+c.overload]
	if !ok {
		text = signatures[c.name]
	}
	names := strings.Fields(text)
	for k, a := range x.Args {
		at := "argument " + string(rune('0'+k%10))
		if k < len(names) {
			at = names[k]
		}
		kw, named := a.(*syntax.BinaryExpr)
		if named = named && kw.Op == syntax.EQ; named {
			at, a = inductor.Dotted(kw.X), kw.Y
		}
		v := r.eval(a)
		switch {
		case named && at == "out":
			c.out = v.t
		case v.t != nil:
			c.order, c.tensors[at] = append(c.order, at), []*op.Tensor{v.t}
		case len(v.list) > 0 && v.list[0].t != nil:
			var ts []*op.Tensor
			for _, e := range v.list {
				ts = append(ts, e.t)
			}
			c.order, c.tensors[at] = append(c.order, at), ts
		case v.list != nil:
			c.values[at] = numbers(v.list)
		default:
			c.values[at] = v.x
		}
	}
	return c
}

// numbers are the items of a list as rows take them.
func numbers(list []value) any {
	ints, all := make([]int64, len(list)), make([]any, len(list))
	plain := true
	for i, v := range list {
		n, ok := v.x.(int64)
		ints[i], all[i], plain = n, v.x, plain && ok
	}
	if plain {
		return ints
	}
	return all
}

// row runs the row of a call; nil: there is none.
func (r *run) row(c *called) []*op.Tensor {
	switch c.name {
	case "mm":
		return r.p.Into(c.out, aten.Mm, nil, c.ins("self mat2")...)
	case "bmm":
		return r.p.Into(c.out, aten.Bmm, nil, c.ins("self mat2")...)
	case "addmm":
		return r.p.Into(c.out, aten.Addmm, nil, c.ins("self mat1 mat2")...)
	case "bias_addmm": // of an expanded bias, its first row (torch/_inductor/kernel/mm.py: bias_addmm)
		in := c.ins("self mat1 mat2")
		if b := in[0]; b.Rank() == 2 && b.Stride.At(0) == 0 {
			row := r.p.Alias(b, tensor.Layout{Size: b.Size.Remove(0), Stride: b.Stride.Remove(0), Offset: b.Offset}, b.DType)
			defer r.p.Drop(row)
			in[0] = row
		}
		return r.p.Into(c.out, aten.Addmm, nil, in...)
	case "baddbmm":
		return r.p.Into(c.out, aten.Baddbmm, &aten.BaddbmmArgs{Beta: 1, Alpha: 1}, c.ins("self batch1 batch2")...)
	}
	d := aten.DispatchOf(c.name, c.overload)
	if d == nil || signatures[c.name] == "" && signatures[c.name+"."+c.overload] == "" {
		return nil
	}
	var args any
	if d.Args != nil {
		args = d.Args(c.values)
	} else if len(c.values) > 0 {
		return nil
	}
	if !d.Back {
		named := d.In
		if named == "" {
			named = strings.Join(c.order, " ")
		}
		return r.p.Into(c.out, d.Row, args, c.ins(named)...)
	}
	return r.derive(c, d, args)
}

// ins are the tensors of these arguments; the last may be a list.
func (c *called) ins(named string) []*op.Tensor {
	var out []*op.Tensor
	for _, n := range strings.Fields(named) {
		if ts := c.tensors[n]; len(ts) > 0 {
			out = append(out, ts...)
		} else {
			out = append(out, nil)
		}
	}
	return out
}

// derive runs the derivative of a row, whose gradients come in the order of the call's.
func (r *run) derive(c *called, d *aten.Dispatch, args any) []*op.Tensor {
	g, in, out := c.ins(d.Grads), c.ins(d.In), c.ins(d.Out)
	inM, outM := make([]op.Meta, len(in)), make([]op.Meta, max(len(out), len(g)))
	for i, t := range in {
		if t != nil {
			inM[i] = op.Meta{Layout: t.Layout, DType: t.DType}
		}
	}
	for _, ts := range [][]*op.Tensor{out, g} {
		for i, t := range ts {
			if t != nil {
				outM[i] = op.Meta{Layout: t.Layout, DType: t.DType}
			}
		}
	}
	wanted := d.Wanted
	if wanted == nil {
		for i := range in {
			wanted = append(wanted, i)
		}
	}
	mask, _ := c.values[d.Mask].([]any)
	needs := make([]bool, len(in))
	for k, i := range wanted {
		needs[i] = d.Mask == "" || k < len(mask) && mask[k] == true
		if needs[i] && in[i] == nil && g[0] != nil { // the bias, which the call does not have
			size := tensor.D(g[0].Dim(1))
			inM[i] = op.Meta{Layout: tensor.Contiguous(size), DType: g[0].DType}
		}
	}
	all := r.p.Derive(d.Row, args, g, in, out, inM, outM, needs)
	made := make([]*op.Tensor, 0, len(wanted))
	for _, i := range wanted {
		made = append(made, all[i])
		all[i] = nil
	}
	r.p.Drop(all...)
	return made
}

// asserted makes the results of the operator of line i as the lines below say that they are.
func (r *run) asserted(i int, c *called) value {
	names := r.g.Code[i].Names
	if len(names) != 1 {
		return value{}
	}
	d := tensor.Float32
	for _, n := range c.order {
		if ts := c.tensors[n]; len(ts) > 0 && ts[0] != nil {
			d = ts[0].DType
			break
		}
	}
	items, most := map[string]int64{names[0]: -1}, int64(-1)
	found := map[int64]*op.Tensor{}
	for _, l := range r.g.Code[i+1:] {
		if x, ok := l.Expr.(*syntax.IndexExpr); ok && inductor.Dotted(x.X) == names[0] && len(l.Names) == 1 {
			if n, ok := x.Y.(*syntax.Literal); ok {
				if k, ok := n.Value.(int64); ok {
					items[l.Names[0]], most = k, max(most, k)
				}
			}
		}
		x, ok := l.Expr.(*syntax.CallExpr)
		if !ok || inductor.Dotted(x.Fn) != "assert_size_stride" || len(x.Args) < 3 {
			continue
		}
		k, ours := items[inductor.Dotted(x.Args[0])]
		if !ours || found[k] != nil {
			continue
		}
		found[k] = r.p.New(r.layout(r.eval(x.Args[1]), r.eval(x.Args[2]), 0), d)
	}
	if most < 0 {
		return value{t: found[-1]}
	}
	v := value{list: make([]value, most+1)}
	for k, t := range found {
		if k >= 0 {
			v.list[k].t = t
		} else {
			r.p.Drop(t)
		}
	}
	return v
}
