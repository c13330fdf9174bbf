package advise

import (
	"context"
	"fmt"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
)

// TestIslands: near the limit a batch may fit although a smaller one does not, by
// far more than the next few. The search looks an eighth further, and says what did not fit below.
func TestIslands(t *testing.T) {
	r := &estimate.Recipe{Path: "x.yaml", Text: []byte(`memplan: 1
model:
  inputs: {x: [1000], y: {shape: [], dtype: int64}}
  layers: [{Linear: 3000}, ReLU, {Linear: 2000}, ReLU, {Linear: 1500}, {Linear: 1000}]
  loss: {cross_entropy: {target: y}}
train: {batch_size: 4, optimizer: AdamW}
device: {gpu: t4, context: 500MiB, memory: 1100MiB}
`)}
	f, err := Search(context.Background(), r, Batch, 0.05)
	if err != nil {
		t.Fatal(err)
	}
	if f.Largest < 6469 || len(f.Islands) == 0 {
		t.Fatalf("%+v", f)
	}
	for _, b := range []int64{f.Largest, f.Islands[len(f.Islands)-1]} {
		j, err := r.Job(estimate.Key{Path: Batch.Key, Value: fmt.Sprint(b)})
		if err != nil {
			t.Fatal(err)
		}
		if fits, _, err := estimate.Fits(j); err != nil || fits != (b == f.Largest) {
			t.Errorf("%d: fits %v, %v", b, fits, err)
		}
	}
}
