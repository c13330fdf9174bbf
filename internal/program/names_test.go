package program

import (
	"slices"
	"testing"
)

// TestNames checks what a checkpoint calls tensors of a model, and of what experts are joined.
func TestNames(t *testing.T) {
	n := &Names{Experts: []string{"w1", "w3", "w2"}, Renamed: [][2]string{{"mlp", "block_sparse_moe"}, {"model.head", "head"}}}
	for name, want := range map[string]string{
		"model.layers.0.mlp.gate.weight": "model.layers.0.block_sparse_moe.gate.weight",
		"model.layers.0.mlp2.weight":     "model.layers.0.mlp2.weight",
		"model.head.weight":              "head.weight",
	} {
		if got := n.Stored(name); got != want {
			t.Errorf("%s is stored as %s, want %s", name, got, want)
		}
	}
	for _, c := range []struct {
		module, param string
		dims          int
		want          []string
	}{
		{"model.mlp.experts", "gate_up_proj", 3, n.Experts[:2]},
		{"model.mlp.experts", "down_proj", 3, n.Experts[2:]},
		{"model.mlp.experts", "gate_up_proj_bias", 2, nil},
		{"model.mlp.shared_experts", "down_proj", 3, nil},
	} {
		if got := n.Joins(c.module, &Param{Name: c.param, Size: make([]int64, c.dims)}); !slices.Equal(got, c.want) {
			t.Errorf("%s of %s is joined of %v, want %v", c.param, c.module, got, c.want)
		}
	}
	var none *Names
	if none.Stored("x.y") != "x.y" || none.Joins("experts", &Param{Size: make([]int64, 3)}) != nil {
		t.Error("without names the checkpoint's are not the model's")
	}
}
