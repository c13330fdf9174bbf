package optim

import (
	"fmt"
	"testing"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// listing writes down what an optimizer allocates and frees.
type listing struct {
	*op.Blocks
	list []int64 // bytes, or, if negative, the number of the block that is freed
	made int
}

func (l *listing) New(at tensor.Layout, d tensor.DType) *op.Tensor {
	l.made++
	l.list = append(l.list, at.StorageElems()*d.Size())
	return &op.Tensor{Layout: at, DType: d, Aux: l.made}
}

func (l *listing) Drop(ts ...*op.Tensor) {
	for _, t := range ts {
		if t != nil {
			l.list = append(l.list, -int64(t.Aux.(int)))
		}
	}
}

func (l *listing) Persist(t *op.Tensor) *op.Tensor { return t }
func (l *listing) Paged(tensor.Bytes)              {}
func (l *listing) Evaluate() *op.Tensor            { return nil }
func (l *listing) Values() Values                  { return nil }

// TestTorchao compares two steps with recordings of torchao (main, August 2026) on a virtual
// GPU, compiled by Inductor of PyTorch 2.6, whose kernels did nothing.
func TestTorchao(t *testing.T) {
	for _, c := range []struct {
		row    string
		dtype  tensor.DType
		size   []int64
		args   map[string]any
		states []int64
		step   string // of blocks that are numbered from 1
	}{
		{"AdamW8bit", tensor.BFloat16, []int64{1024, 1024}, nil, []int64{1048576, 16384, 1024, 1048576, 16384, 1024}, "[]"},
		{"AdamW8bit", tensor.Float32, []int64{4096}, nil, []int64{4096, 64, 1024, 4096, 64, 1024}, "[]"},
		{"AdamW8bit", tensor.BFloat16, []int64{1024, 1024}, map[string]any{"bf16_stochastic_round": true}, []int64{1048576, 16384, 1024, 1048576, 16384, 1024}, "[8 -1]"},
		{"AdamW8bit", tensor.Float32, []int64{1024, 1024}, map[string]any{"bf16_stochastic_round": true}, []int64{1048576, 16384, 1024, 1048576, 16384, 1024}, "[]"},
		{"AdamW8bit", tensor.BFloat16, []int64{100, 100}, nil, []int64{20000, 20000}, "[]"},
		{"AdamW8bit", tensor.BFloat16, []int64{100, 100}, map[string]any{"bf16_stochastic_round": true}, []int64{20000, 20000}, "[8 -1]"},
		{"AdamW8bit", tensor.BFloat16, []int64{2048}, nil, []int64{4096, 4096}, "[]"},
		{"AdamW8bit", tensor.BFloat16, []int64{64, 3, 16, 16}, nil, []int64{49152, 768, 1024, 49152, 768, 1024}, "[]"},
		{"AdamW8bit", tensor.BFloat16, []int64{512, 1376}, nil, []int64{704512, 11008, 1024, 704512, 11008, 1024}, "[11008 11008 -1 -2]"},
		{"AdamW8bit", tensor.BFloat16, []int64{1376, 512}, nil, []int64{704512, 11008, 1024, 704512, 11008, 1024}, "[]"},
		{"AdamW8bit", tensor.BFloat16, []int64{4096, 96}, nil, []int64{393216, 6144, 1024, 393216, 6144, 1024}, "[]"},
		{"AdamW8bit", tensor.BFloat16, []int64{64, 3, 7, 64}, nil, []int64{86016, 1344, 1024, 86016, 1344, 1024}, "[1344 1344 -1 -2]"},
		{"AdamW8bit", tensor.BFloat16, []int64{32, 640, 3, 3}, nil, []int64{184320, 2880, 1024, 184320, 2880, 1024}, "[2880 2880 -1 -2]"},
		{"AdamW8bit", tensor.BFloat16, []int64{512, 384}, map[string]any{"bf16_stochastic_round": true}, []int64{196608, 3072, 1024, 196608, 3072, 1024}, "[3072 3072 8 -3 -1 -2]"},
		{"AdamW8bit", tensor.BFloat16, []int64{4096, 3, 4}, map[string]any{"bf16_stochastic_round": true}, []int64{49152, 768, 1024, 49152, 768, 1024}, "[8 -1]"},
		{"AdamW4bit", tensor.BFloat16, []int64{1024, 1024}, nil, []int64{524288, 32768, 64, 524288, 32768, 64}, "[4194304 8388608 4194304 8388608 -1 -2 -3 -4]"},
		{"AdamW4bit", tensor.BFloat16, []int64{1024, 1024}, map[string]any{"bf16_stochastic_round": true}, []int64{524288, 32768, 64, 524288, 32768, 64},
			"[8 4194304 8388608 4194304 8388608 -1 -2 -3 -4 -5]"},
		{"AdamW4bit", tensor.BFloat16, []int64{512, 1376}, map[string]any{"block_size": int64(256)}, []int64{352256, 11008, 64, 352256, 11008, 64},
			"[11008 11008 2818048 5636096 2818048 5636096 -4 -1 -3 -6 -2 -5]"},
		{"AdamW4bit", tensor.BFloat16, []int64{4096, 96}, map[string]any{"bf16_stochastic_round": true}, []int64{196608, 12288, 64, 196608, 12288, 64},
			"[12288 12288 8 1572864 3145728 1572864 3145728 -3 -5 -1 -4 -7 -2 -6]"},
		{"AdamW4bit", tensor.BFloat16, []int64{64, 3, 7, 64}, nil, []int64{43008, 2688, 64, 43008, 2688, 64},
			"[2688 2688 344064 688128 344064 688128 -4 -1 -3 -6 -2 -5]"},
		{"AdamW4bit", tensor.BFloat16, []int64{256, 3, 16, 16}, map[string]any{"block_size": int64(256)}, []int64{98304, 3072, 64, 98304, 3072, 64},
			"[786432 1572864 786432 1572864 -1 -2 -3 -4]"},
		{"AdamWFp8", tensor.BFloat16, []int64{1024, 1024}, nil, []int64{1048576, 16384, 1048576, 16384}, "[16384 16384 -1 -2]"},
		{"AdamWFp8", tensor.BFloat16, []int64{1024, 1024}, map[string]any{"bf16_stochastic_round": true}, []int64{1048576, 16384, 1048576, 16384}, "[16384 16384 8 -3 -1 -2]"},
		{"AdamWFp8", tensor.BFloat16, []int64{512, 96}, nil, []int64{49152, 768, 49152, 768}, "[768 768 -1 -2]"},
		{"AdamWFp8", tensor.Float32, []int64{100, 100}, nil, []int64{40000, 40000}, "[]"},
	} {
		row := Lookup("torchao." + c.row)
		args := argsOf(t, row, c.args)
		if _, err := row.Check(args, torchver.Recorded); err != nil {
			t.Errorf("%s %v: %v", c.row, c.args, err)
		}
		x := &listing{Blocks: op.NewBlocks(&op.Env{})}
		like := op.Tensor{Layout: tensor.Contiguous(tensor.D(c.size...)), DType: c.dtype}
		grad := like
		p := &Param{T: &like, Grad: &grad}
		row.Step(x, []Group{{Args: args, Params: []*Param{p}}})
		if got := fmt.Sprint(x.list[:len(c.states)]); got != fmt.Sprint(c.states) {
			t.Errorf("%s of %v: states %v, not %v", c.row, c.size, got, c.states)
		}
		x.list, x.made = nil, 0
		row.Step(x, []Group{{Args: args, Params: []*Param{p}}})
		if got := fmt.Sprint(x.list); got != c.step {
			t.Errorf("%s of %v, %v: %s, not %s", c.row, c.size, c.args, got, c.step)
		}
	}
}
