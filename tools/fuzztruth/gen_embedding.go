package main

import "fmt"

// bags begins a program with bags of indices.
func (g *generator) bags(m *body, batch int64) (inputs string) {
	n, d, rows := g.size(2, 150), g.size(8, 160), g.size(50, 3000)
	mode := g.pick("sum", "mean", "max")
	if g.bf16 && mode == "max" { // has no backward pass
		mode = "mean"
	}
	m.emit("{EmbeddingBag: {num_embeddings: %d, embedding_dim: %d, mode: %s}}", rows, d, mode)
	m.cur = value{"x", []int64{batch, d}, false}
	return fmt.Sprintf("    a: {shape: [%d], dtype: %s}\n", n, g.pick("int64", "int64", "int32"))
}

// bilinear writes a Bilinear of the value and a projection of it.
func (b *body) bilinear() bool {
	g, s, x := b.g, b.cur.shape, b.cur.name
	n, out := g.size(1, 40), g.size(1, 9)
	other := fmt.Sprintf("{Linear: %d, inputs: %s}", n, x)
	first, second := x, other
	if g.chance(0.5) {
		first, second = other, x
	}
	b.emit("{Bilinear: {out_features: %d, bias: %s}, inputs: [%s, %s]}", out, g.pick("true", "false"), first, second)
	b.result("", with(s, len(s)-1, out), true)
	return true
}
