package compiled

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/inductor"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

const log = `# AOT ID: ['0_forward']
def call(args):
    primals_1, primals_2, primals_3, primals_4 = args
    args.clear()
    s0 = primals_1
    assert_size_stride(primals_2, (8, 4), (4, 1))
    assert_size_stride(primals_3, (s0, 4), (4, 1))
    assert_size_stride(primals_4, (32, 4, s0), (4*s0, s0, 1))
    with torch.cuda._DeviceGuard(0):
        buf0 = empty_strided_cuda((s0, 8), (8, 1), torch.float32)
        extern_kernels.mm(primals_3, reinterpret_tensor(primals_2, (4, 8), (1, 4), 0), out=buf0)
    return (buf0, None, primals_3, )

def benchmark_compiled_module():
    primals_2 = rand_strided((8, 4), (4, 1), device='cuda:0', dtype=torch.float32)
    primals_3 = rand_strided((16, 4), (4, 1), device='cuda:0', dtype=torch.bfloat16)
`

func graph(t *testing.T) *inductor.Graph {
	t.Helper()
	graphs, err := inductor.Read("x.log", strings.NewReader(log))
	if err != nil || len(graphs) != 1 || len(graphs[0].Inputs) != 4 {
		t.Fatal(graphs, err)
	}
	return graphs[0]
}

func of(d tensor.DType, size ...int64) *op.Tensor {
	return &op.Tensor{Layout: tensor.Contiguous(tensor.D(size...)), DType: d}
}

// TestFits: an input is that of a graph by size, strides and type; what a symbol is, the
// first tensor tells, and only one that fits.
func TestFits(t *testing.T) {
	g := graph(t)
	turned := of(tensor.Float32, 4, 8)
	turned.Layout = tensor.Layout{Size: tensor.D(8, 4), Stride: tensor.D(1, 8)}
	for _, c := range []struct {
		input int
		t     *op.Tensor
		known map[string]int64
		want  bool
	}{
		{1, of(tensor.Float32, 8, 4), nil, true},
		{1, of(tensor.BFloat16, 8, 4), nil, false},
		{1, of(tensor.Float32, 4, 8), nil, false},
		{1, of(tensor.Float32, 32), nil, false},
		{1, turned, nil, false},
		{2, of(tensor.BFloat16, 16, 4), nil, true},
		{2, of(tensor.BFloat16, 16, 4), map[string]int64{"s0": 16}, true},
		{2, of(tensor.BFloat16, 16, 4), map[string]int64{"s0": 8}, false},
		{3, of(tensor.Float64, 32, 4, 7), nil, true}, // its type is not said
		{3, of(tensor.Float64, 31, 4, 7), nil, false},
	} {
		symbols := map[string]int64{}
		for s, n := range c.known {
			symbols[s] = n
		}
		if got := fits(&g.Inputs[c.input], c.t, symbols); got != c.want {
			t.Errorf("%s, %v of %v, knowing %v: %v", describe(&g.Inputs[c.input]), c.t.DType, c.t.Size, c.known, got)
		}
		if _, learnt := symbols["s0"]; learnt != (c.known != nil || c.want && c.input > 1) {
			t.Errorf("%v of %v: what is known of sizes is %v", c.t.DType, c.t.Size, symbols)
		}
	}
}

// TestOtherBatch tells the batch of a log from that of the job, and from another tensor.
func TestOtherBatch(t *testing.T) {
	g := graph(t)
	for _, c := range []struct {
		input  int
		t      *op.Tensor
		logged int64
		other  bool
	}{
		{1, of(tensor.Float32, 64, 4), 8, true},
		{1, of(tensor.Float32, 8, 4), 0, false},
		{1, of(tensor.BFloat16, 64, 4), 0, false},
		{1, of(tensor.Float32, 64, 5), 0, false},
		{1, of(tensor.Float32, 64), 0, false},
		{2, of(tensor.BFloat16, 64, 4), 0, false}, // any number of samples
		{3, of(tensor.Float32, 2, 4, 9), 32, true},
	} {
		n, other := otherBatch(&g.Inputs[c.input], c.t)
		if other != c.other || other && n != c.logged {
			t.Errorf("%s and %v of %v: %d, %v", describe(&g.Inputs[c.input]), c.t.DType, c.t.Size, n, other)
		}
	}
}

// TestSymbol: a number that goes into a graph is known by the name that its code gives it.
func TestSymbol(t *testing.T) {
	g, m := graph(t), &Model{}
	if got := m.symbol(g, "primals_1"); got != "s0" {
		t.Errorf("primals_1 is %q", got)
	}
	if got := m.symbol(g, "s1"); got != "s1" {
		t.Errorf("s1 is %q", got)
	}
}

// TestReturned: what a graph returns, and where it returns nothing.
func TestReturned(t *testing.T) {
	got := returned(graph(t))
	if len(got) != 3 || isNone(got[0]) || !isNone(got[1]) || isNone(got[2]) {
		t.Errorf("%v", got)
	}
}

// TestDescribe names sizes as the log does, and the type where it says one.
func TestDescribe(t *testing.T) {
	g := graph(t)
	for i, want := range []string{1: "size (8, 4) and type float32", 2: "size (s0, 4) and type bfloat16", 3: "size (32, 4, s0)"} {
		if i > 0 && describe(&g.Inputs[i]) != want {
			t.Errorf("input %d is of %s, want %s", i, describe(&g.Inputs[i]), want)
		}
	}
}
