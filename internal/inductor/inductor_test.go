package inductor

import (
	"os"
	"strings"
	"testing"
)

// TestForward reads what torch.compile of PyTorch 2.14 wrote for two blocks of
// attention, on a CPU, whose wrapper differs from CUDA's in the names of devices.
func TestForward(t *testing.T) {
	text, err := os.ReadFile("testdata/forward.log")
	if err != nil {
		t.Fatal(err)
	}
	graphs, err := Read("forward.log", strings.NewReader(string(text)))
	if err != nil || len(graphs) != 1 {
		t.Fatal(graphs, err)
	}
	g := graphs[0]
	// What is saved of each block beside its inputs: mean and deviation of the norm, its
	// result, q, k and v as one, attention's result and log-sum-exp, GELU's result; and
	// once what the next block adds to.
	block := 128*4*2 + 4*32*64*4 + 128*192*4 + 4*32*64*4 + 4*4*32*4 + 4*32*64*4
	want := 2*block + 2*128*64*4
	if g.Name != "0_forward" || g.Backward() || int(g.Returns) != want {
		t.Errorf("%+v, want %d returned", g, want)
	}
	if g.Peak < g.Returns || g.Given != 4*(64+64+4*32*64+192*64+192+64*64+64+64+64+192*64+192+64*64+64) {
		t.Errorf("%+v", g)
	}
}

const small = `# AOT ID: ['3_backward']
def call(args):
    primals_1, tangents_1 = args
    args.clear()
    with torch.cuda._DeviceGuard(0):
        buf0 = empty_strided_cuda((8, 4), (4, 1), torch.float32)
        buf1 = buf0; del buf0  # reuse
        buf2 = extern_kernels.convolution(primals_1, primals_1, stride=(1, 1))
        assert_size_stride(buf2, (10, ), (1, ))
        del primals_1
        buf3 = torch.ops.aten.topk.default(buf2, 2)
        del buf2
        buf4 = buf3[0]
        assert_size_stride(buf4, (2, ), (1, ))
        buf5 = buf3[1]
        assert_tensor_metadata(buf5, (2, ), (1, ), torch.int64, 'topk')
        del buf3
        buf6 = reinterpret_tensor(buf1, (32, ), (1, ), 0); del buf1  # reuse
    return (buf6, None, buf5, )

def benchmark_compiled_module():
    primals_1 = rand_strided((10, ), (1, ), device='cuda:0', dtype=torch.bfloat16)
`

func TestSmall(t *testing.T) {
	graphs, err := Read("x.log", strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	if g := graphs[0]; g.Name != "3_backward" || g.Line != 2 || g.Peak != 128+20 || g.Returns != 128+16 || g.Allocs != 4 || g.Given != 20 || len(g.Inputs) != 2 || len(g.Code) != 16 {
		t.Errorf("%+v, %d statements", g, len(g.Code))
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "x.log:1: no compiled graph; run with TORCH_LOGS=output_code"},
		{"def call(args):\n    buf0 = [x for x in y\n    return (buf0, )\n", `x.log:2: "buf0 = [x for x in y" is no statement that Inductor is known to write`},
		{"def call(args):\n    buf0 = empty_strided_cuda((4, ), (1, ), torch.float3)\n    return (buf0, )\n", "x.log:2: "},
		{"def call(args):\n    buf0 = empty_strided_cuda((4, 5), (1, ), torch.float32)\n    return (buf0, )\n", "x.log:2: 2 sizes and 1 strides"},
		{"def call(args):\n    buf0 = empty_strided_cuda((4, 9000000000000000000), (9000000000000000000, 1), torch.float32)\n    return (buf0, )\n", "too large"},
		{"def call(args):\n    buf0 = extern_kernels.convolution(primals_1)\n    assert_size_stride(buf0, (4, ), (1, ))\n    return (buf0, )\n", "x.log:3: the type of buf0 is not said"},
		{"def call(args):\n    pass\n", "the graph of line 1 ends without a return"},
	} {
		if _, err := Read("x.log", strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

// FuzzRead reads anything without a panic, and sums that are in order.
func FuzzRead(f *testing.F) {
	f.Add(small)
	f.Add("def call(self, args):\nbuf0 = empty_strided_cuda((), (), torch.float32)\nreturn (buf0, )")
	f.Fuzz(func(t *testing.T, text string) {
		graphs, err := Read("x.log", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, g := range graphs {
			if g.Returns < 0 || g.Peak < 0 || g.Given < 0 {
				t.Errorf("%+v", g)
			}
		}
	})
}
