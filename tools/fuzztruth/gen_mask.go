package main

import "fmt"

// masks makes a mask of the tokens of a sequence as libraries of language
// models do, and fills by it.
func (b *body) masks() bool {
	g, s, x := b.g, b.cur.shape, b.cur.name
	if len(s) != 3 || s[1] < 2 {
		return false
	}
	m, c, p := b.fresh(), b.fresh(), b.fresh()
	b.emit("{gt: 0, inputs: [{getitem: '..., 0', inputs: %s}], name: %s}", x, m)
	if g.chance(0.5) {
		t := b.fresh()
		b.emit("{%s: %s, inputs: %s, name: %s}", g.pick("all", "any"), g.pick("", "1", "{dim: 0, keepdim: true}"), m, t)
		if g.chance(0.5) {
			b.emit("{del: %s}", t)
		}
	}
	b.emit("{cumsum: -1, inputs: %s, name: %s}", m, c)
	if g.chance(0.5) {
		b.emit("{diff: {dim: 1%s}, inputs: %s, name: %s}", g.pick("", fmt.Sprintf(", prepend: {getitem: ':, :1', inputs: %s}", c)), c, b.fresh())
	}
	b.emit("{index_pair: [%s, {getitem: ':, None', inputs: [{arange: %d}]}, {getitem: 'None, :', inputs: [{arange: %d}]}], name: %s}", m, s[0], s[1], p)
	if g.chance(0.5) {
		b.emit("{logical_and: [%s, {ne: 1, inputs: %s}], name: %s}", p, c, p)
	}
	b.emit("{masked_fill: {mask: {unsqueeze: -1, inputs: %s}, value: 0.0}, inputs: %s}", p, x)
	b.result("", s, false)
	return true
}

// grouped attends with fewer heads of keys and values than of queries.
func (b *body) grouped(heads, groups int64) {
	g, s, x := b.g, b.cur.shape, b.cur.name
	d := s[2] / heads
	view := func(heads int64) string {
		return fmt.Sprintf("{transpose: [1, 2], inputs: [{reshape: [%d, %d, %d, %d], inputs: [{getitem: '..., :%d', inputs: %s}]}]}", s[0], s[1], heads, d, heads*d, x)
	}
	b.emit("{scaled_dot_product_attention: {dropout_p: %s, is_causal: %s, enable_gqa: true}, inputs: [%s, %s, %s]}",
		g.pick("0.0", "0.2"), g.pick("true", "false"), view(heads), view(heads/groups), view(heads/groups))
	b.result("", []int64{s[0], heads, s[1], d}, true)
	b.emit("{transpose: [1, 2], inputs: x}")
	b.emit("reshape: %s", list(s))
	b.result("", s, true)
}
