package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/trace"
)

// searched is a spec with the given layers over images, as train says.
func searched(layers, train string) string {
	return fmt.Sprintf(`memplan: 1
model:
  inputs: {x: [8, 16, 16]}
  blocks:
    block: {layers: [{Conv2d: {out_channels: 8, kernel_size: 3, padding: 1, bias: false}}, ReLU]}
  layers:
%s
  loss: {sum: null}
train: {batch_size: 32, optimizer: SGD%s}
`, strings.TrimRight(layers, "\n"), train)
}

// TestSearches counts how often the cache is emptied: once for each plan that
// cuDNN searches for, in each thread.
func TestSearches(t *testing.T) {
	const first, second = "    - block: block\n", "    - {Conv2d: {out_channels: 4, kernel_size: 3, bias: false}}\n"
	part := func(name string, from int) string { // an image of x, from an element on
		return fmt.Sprintf("    - {narrow: {dim: 0, start: %d, length: 2048}, inputs: [{flatten: {input: x, start_dim: 0}}], name: flat}\n"+
			"    - {block: block, inputs: [{view: {self: flat, shape: [1, 8, 16, 16]}}], name: %s}\n", from, name)
	}
	for _, c := range []struct {
		layers, train string
		want          int
	}{
		{first + second, "", 0},
		{first + second, ", cudnn_benchmark: false", 0},
		{first, ", cudnn_benchmark: true", 2},                                                           // results, gradient of the filter
		{first + second, ", cudnn_benchmark: true", 5},                                                  // both of two, and the gradient of an image
		{first + first + first, ", cudnn_benchmark: true", 3},                                           // alike
		{"    - {block: block, checkpoint: true}\n", ", cudnn_benchmark: true", 3},                      // results again, in the thread of the backward pass
		{"    - {block: block, checkpoint: true}\n", ", cudnn_benchmark: true, precision: amp-bf16", 3}, // of another type
		{part("p", 8) + part("q", 16) + "    - {add: [p, q]}\n", ", cudnn_benchmark: true", 2},          // at multiples of 32 bytes
		{part("p", 8) + part("q", 17) + "    - {add: [p, q]}\n", ", cudnn_benchmark: true", 4},          // at one of 4 bytes
		{first, ", cudnn_benchmark: true}\neval: {batch_size: 7", 3},                                    // images of another batch
		{first, ", cudnn_benchmark: true}\neval: {batch_size: 7, every: 3", 3},                          // late
	} {
		p := play(t, build(t, searched(c.layers, c.train)))
		n, last := 0, int32(0)
		for _, e := range p.Trace.Events {
			if e.Kind == trace.EmptyCache {
				n, last = n+1, e.Step
			}
		}
		if n != c.want {
			t.Errorf("%q, %q: %d searches, want %d", c.layers, c.train, n, c.want)
		}
		if late := strings.Contains(c.train, "every: 3"); n > 0 && (last == 3) != late {
			t.Errorf("%q: the last search is in step %d", c.train, last)
		}
	}
}

// TestSearchWorkspace checks that a search takes a workspace, which is freed before
// the cache is emptied, and the plan takes one again.
func TestSearchWorkspace(t *testing.T) {
	const ws = 5_000_000
	j := build(t, searched("    - block: block\n", ", cudnn_benchmark: true"))
	e := a100
	e.CudnnWorkspace = cudnn.Workspace{Bytes: ws}
	p, err := engine.Play(j, e, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	open := map[int32]bool{}
	for _, e := range p.Trace.Events {
		switch {
		case e.Kind == trace.EmptyCache:
			got.WriteString("empty ")
		case e.Kind == trace.Alloc && e.Bytes == ws:
			open[e.ID] = true
			got.WriteString("alloc ")
		case e.Kind == trace.Free && open[e.ID]:
			got.WriteString("free ")
		}
	}
	if want := strings.Repeat("alloc free empty alloc free ", 2); got.String() != want {
		t.Errorf("%s, want %s", got.String(), want)
	}
}
