package record

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

// machines are those on which the recordings in testdata were made.
var machines = map[string]op.Env{
	"sm80": {Arch: 80, SMs: 108, ThreadsPerSM: 2048},
	"sm90": {Arch: 90, SMs: 132, ThreadsPerSM: 2048},
}

// TestPlay plays recordings and compares the events with those of PyTorch's allocator, which
// ran the same script.
func TestPlay(t *testing.T) {
	paths, err := filepath.Glob(needs.File(t, "record", "*.json.gz"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no recordings", err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json.gz")
		t.Run(name, func(t *testing.T) {
			var want struct {
				Arch   string
				Events map[string][]trace.RecordedEvent
			}
			readGzip(t, path, &want)
			env := machines[want.Arch]
			env.Torch, env.StubCudnn = torchver.Recorded, true
			r := read(t, strings.TrimSuffix(path, ".json.gz")+".rec.gz")[0]
			p, err := Play(nil, r, env)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range p.Doubts {
				t.Errorf("%s: %s", d.Op, d.Why)
			}
			for i := range p.Trace.Events { // the script goes on after its last step, and the recorded list does not tell steps apart
				p.Trace.Events[i].Step = 0
			}
			recorded := want.Events["setup"]
			events := p.Trace.Events[:min(len(recorded), len(p.Trace.Events))]
			if diff := trace.Difference(want.Events, events, false, p.Precision != "fp32"); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func readGzip(t *testing.T, path string, to any) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(to); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []*Recording {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Read(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRoles looks at what blocks are said to be for.
func TestRoles(t *testing.T) {
	r := read(t, needs.File(t, "record", "mlp.rec.gz"))[0]
	env := machines["sm90"]
	env.Torch = torchver.Recorded
	p, err := Play(nil, r, env)
	if err != nil {
		t.Fatal(err)
	}
	const weights = 4 * (1024*2048 + 2048 + 2048*10 + 10) // of two layers, in float32
	for category, want := range map[trace.Category]int64{trace.Parameters: weights, trace.Gradients: weights, trace.OptimizerState: 2 * weights} {
		if got := int64(p.Totals[category]); got != want {
			t.Errorf("%v: %d bytes, not %d", category, got, want)
		}
	}
	if p.Parameters != weights/4 || p.Trainable != weights/4 || p.Tensors != 4 || p.Steps != 3 || p.Precision != "fp32" {
		t.Errorf("%d parameters, %d trainable, in %d tensors; %d steps in %s", p.Parameters, p.Trainable, p.Tensors, p.Steps, p.Precision)
	}
	if i := slices.Index(p.Trace.Layers, "0"); i < 0 || p.Classes[i] != "Linear" {
		t.Errorf("the layers are %v of the classes %v", p.Trace.Layers, p.Classes)
	}
}

// TestNoRow counts an operator that memplan does not know by its results.
func TestNoRow(t *testing.T) {
	text := strings.Join([]string{
		`["memplan",1,{"torch":"2.6.0"}]`,
		`["schema","mylib::attend(Tensor x) -> Tensor"]`,
		`["meta","float32",[256],[1]]`,
		`["storage","cuda:0",1024,"input"]`,
		`["storage","cuda:0",2048,"op"]`,
		`["op",0,[{"t":[0,0,0,0]}],{},[{"t":[1,0,0,0]}],{}]`,
		`["free",0]`,
		`["end",{"reason":"exit"}]`,
	}, "\n")
	all, err := Read([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Play(nil, all[0], op.Env{Torch: torchver.Recorded})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Doubts) != 1 || p.Doubts[0].Op != "mylib::attend" || p.Doubts[0].Calls != 1 || p.Doubts[0].Bytes != 2048 {
		t.Errorf("doubts: %+v", p.Doubts)
	}
	if n := len(p.Trace.Events); n != 3 || p.Trace.Events[1].Bytes != 2048 || p.Trace.Events[2].Kind != trace.Free {
		t.Errorf("events: %+v", p.Trace.Events)
	}
}

// play plays the lines of a recording in a release of PyTorch.
func play(t *testing.T, release torchver.Version, lines ...string) *Played {
	t.Helper()
	all, err := Read([]byte(`["memplan",1,{"torch":"2.6.0"}]`+"\n"+strings.Join(lines, "\n")), nil)
	if err != nil {
		t.Fatal(err)
	}
	env := machines["sm90"]
	env.Torch = release
	p, err := Play(nil, all[0], env)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range p.Doubts {
		t.Errorf("%s: %s", d.Op, d.Why)
	}
	return p
}

func sizes(p *Played) (allocated []int64, frees int) {
	for _, e := range p.Trace.Events {
		if e.Kind == trace.Alloc {
			allocated = append(allocated, int64(e.Bytes))
		} else {
			frees++
		}
	}
	return allocated, frees
}

// TestState plays flash attention, whose state of random numbers is in host memory in 2.6 and on the device since 2.7,
// in the release that it was recorded with and in the other.
func TestState(t *testing.T) {
	const schema = `["schema","aten::_scaled_dot_product_flash_attention(Tensor query, Tensor key, Tensor value, float dropout_p=0.0, bool is_causal=False, bool return_debug_mask=False, *, float? scale=None) -> (Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, Tensor rng_state, Tensor unused, Tensor debug_attn_mask)"]`
	attention := func(state ...string) []string {
		return append([]string{
			schema,
			`["meta","bfloat16",[2,4,512,64],[131072,32768,64,1]]`, `["meta","float32",[2,4,512],[2048,512,1]]`, `["meta","bfloat16",[0],[1]]`,
			`["storage","cuda:0",524288,"input"]`, `["storage","cuda:0",524288,"op"]`, `["storage","cuda:0",16384,"op"]`, `["storage","cuda:0",0,"op"]`,
		}, state...)
	}
	call := func(a, b string) string {
		const q = `{"t":[0,0,0,0]}`
		return `["op",0,[` + q + `,` + q + `,` + q + `,0.0,true],{},[{"t":[1,0,0,0]},{"t":[2,1,0,0]},null,null,512,512,` + a + `,` + b + `,{"t":[3,2,0,0]}],{}]`
	}
	host := attention(`["meta","int64",[],[]]`, `["storage","cpu",8,"input"]`, `["storage","cpu",8,"input"]`,
		call(`{"t":[4,3,0,0]}`, `{"t":[5,3,0,0]}`), `["free",4]`, `["free",5]`, `["free",2]`, `["free",1]`)
	device := attention(`["meta","uint64",[2],[1]]`, `["meta","uint64",[],[]]`, `["storage","cuda:0",16,"op"]`, `["storage","cuda:0",8,"op"]`,
		call(`{"t":[4,3,0,0]}`, `{"t":[5,4,0,0]}`), `["free",2]`, `["free",1]`, `["free",4]`, `["free",5]`)
	for release, want := range map[torchver.Version][]int64{{Major: 2, Minor: 6}: {524288, 524288, 16384, 32768, 2097152}, {Major: 2, Minor: 14}: {524288, 524288, 16384, 32768, 2097152, 16, 8}} {
		for name, lines := range map[string][]string{"2.6": host, "2.14": device} {
			if got, frees := sizes(play(t, release, lines...)); !slices.Equal(got, want) || frees != len(want)-1 {
				t.Errorf("recorded with %s, played with %v: allocated %v, want %v; %d frees", name, release, got, want, frees)
			}
		}
	}
}

// TestHostIndex adds to elements by an index on the device and one in host memory, which is counted there.
func TestHostIndex(t *testing.T) {
	put := func(device string) []string {
		return []string{
			`["schema","aten::_index_put_impl_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False, bool unsafe=False) -> Tensor(a!)"]`,
			`["meta","float32",[128,2,101],[202,101,1]]`, `["meta","int64",[128],[1]]`, `["meta","float32",[128,101],[101,1]]`,
			`["storage","cuda:0",103424,"input"]`, `["storage","` + device + `",1024,"input"]`, `["storage","cuda:0",1024,"input"]`, `["storage","cuda:0",51712,"input"]`,
			`["op",0,[{"t":[0,0,0,0]},[{"t":[1,1,0,0]},{"t":[2,1,0,0]}],{"t":[3,2,0,0]},true,true],{},[{"t":[0,0,0,0]}],{}]`,
		}
	}
	onDevice, _ := sizes(play(t, torchver.Default, put("cuda:0")...))
	inHost, _ := sizes(play(t, torchver.Default, put("cpu")...))
	// the index itself, and what counts it, of 1024 bytes each
	if want := len(onDevice) - 2; len(inHost) != want {
		t.Errorf("%d allocations with an index in host memory, want %d: %v, on the device %v", len(inHost), want, inHost, onDevice)
	}
}

// TestReal plays what the allocator did itself: the same as what follows from the script's operators.
func TestReal(t *testing.T) {
	env := machines["sm90"]
	env.Torch = torchver.Recorded
	list := func(name string) []trace.Event {
		p, err := Play(nil, read(t, needs.File(t, "record", name))[0], env)
		if err != nil {
			t.Fatal(err)
		}
		if p.Steps != 3 || len(p.Doubts) > 0 {
			t.Errorf("%s: %d steps, doubts %v", name, p.Steps, p.Doubts)
		}
		return p.Trace.Events
	}
	real, predicted := list("net_real.rec.gz"), list("net.rec.gz")
	if len(real) != len(predicted) {
		t.Fatalf("%d events, predicted %d", len(real), len(predicted))
	}
	for i, e := range real {
		if f := predicted[i]; e.Kind != f.Kind || e.ID != f.ID || e.Bytes != f.Bytes {
			t.Fatalf("event %d: %+v, predicted %+v", i, e, f)
		}
	}
}
