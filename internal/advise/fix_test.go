package advise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
)

// fix runs a job and looks for what makes it fit.
func fix(t testing.TB, r *estimate.Recipe, catalogue []*Change, limits Limits) (*Base, *Fixes) {
	t.Helper()
	b := base(t, r)
	f, err := Fix(context.Background(), r, b.Outcome, catalogue, limits)
	if err != nil {
		t.Fatal(err)
	}
	return b, f
}

// with sets keys of a preset.
func with(t testing.TB, name string, keys ...string) *estimate.Recipe {
	r := preset(t, name)
	r.Options.Set = keys
	return r
}

// squeeze makes a job on a GPU that has a share of the memory that it would
// reserve.
func squeeze(t testing.TB, share float64, name string, keys ...string) *estimate.Recipe {
	keys = append(keys, "device.gpu=rtx-3060")
	b := base(t, with(t, name, keys...))
	bytes := b.Job.Machine.Context + tensor.Bytes(share*float64(b.Outcome.Free.PeakReserved.Reserved))
	return with(t, name, append(keys, fmt.Sprintf("device.memory=%dMiB", bytes/tensor.MiB))...)
}

// some are rows of the catalogue.
func some(ids ...string) []*Change {
	var out []*Change
	for _, id := range ids {
		out = append(out, Lookup(id))
	}
	return out
}

func names(options []*Option) string {
	var out []string
	for _, o := range options {
		out = append(out, o.ID())
	}
	return strings.Join(out, " ")
}

// brute simulates every combination and says what Fix must find: those that fit,
// without those of which a part does as well or one that comes before has the same
// changes, by simplicity.
func brute(t testing.TB, b *Base, catalogue []*Change, n int) []string {
	var all, fit []*combination
	var walk func(groups [][]*Option, chosen []*Option)
	walk = func(groups [][]*Option, chosen []*Option) {
		if len(groups) == 0 {
			if len(chosen) > 0 && len(chosen) <= MaxChanges {
				all = append(all, b.combine(slices.Clone(chosen)))
			}
			return
		}
		walk(groups[1:], chosen)
		for _, o := range groups[0] {
			walk(groups[1:], append(slices.Clone(chosen), o))
		}
	}
	walk(b.options(catalogue), nil)
	verdict := map[*combination]outcome{}
	for _, c := range all {
		j, err := b.Recipe.Job(c.keys()...)
		if err != nil {
			continue
		}
		ok, retried, err := estimate.Fits(j)
		if err != nil || !ok {
			continue
		}
		fit = append(fit, c)
		if verdict[c] = fits; retried {
			verdict[c], c.tight = tight, true
		}
	}
	slices.SortFunc(fit, bySimplicity)
	var kept []*combination
	var out []string
	for _, c := range fit {
		spare := slices.ContainsFunc(fit, func(d *combination) bool { return d != c && c.exceeds(d) && verdict[d] >= verdict[c] })
		if !spare && !slices.ContainsFunc(kept, c.varies) && len(out) < n && (verdict[c] == fits || !b.Outcome.Fits()) {
			kept, out = append(kept, c), append(out, c.id)
		}
	}
	return out
}

// What Fix finds is what trying everything finds: the bounds exclude nothing that
// fits, and the order misses nothing.
func TestSimplest(t *testing.T) {
	few := some("expandable-segments", "accumulate", "checkpoint", "offload-activations")
	precise := some("amp", "bf16", "8-bit", "fused", "accumulate", "in-backward")
	cases := []struct {
		r         *estimate.Recipe
		catalogue []*Change
	}{
		{squeeze(t, 0.55, "gpt", "params.layers=3", "params.d=128", "params.heads=4", "params.vocab=2048", "params.seq=256", "train.batch_size=8"), few},
		{squeeze(t, 0.7, "gpt", "params.layers=3", "params.d=256", "params.heads=4", "params.vocab=4096", "params.seq=256", "train.batch_size=4"), precise},
		{squeeze(t, 0.85, "resnet", "params.img=64", "train.batch_size=8"), some("expandable-segments", "accumulate", "checkpoint", "fused")},
		{squeeze(t, 0.8, "mlp", "params.sizes=[2048, 2048, 2048, 2048]", "train.optimizer=AdamW", "train.batch_size=8"), append(precise, some("offload-optimizer", "for-loop")...)},
		{squeeze(t, 0.4, "mlp", "params.sizes=[2048, 2048, 2048, 2048]", "train.optimizer=AdamW", "train.batch_size=8", "train.precision=amp-fp16"), // bf16 mends what offloading clashes with
			some("bf16", "fused", "accumulate", "in-backward", "offload-optimizer")},
	}
	if testing.Short() {
		cases = cases[1:2]
	}
	for i, c := range cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			const n = 4
			b, f := fix(t, c.r, c.catalogue, Limits{Proposals: n})
			var got []string
			for _, p := range f.Proposals {
				got = append(got, names(p.Options))
			}
			want := brute(t, b, c.catalogue, n)
			t.Logf("%d of %d simulated, %d excluded: %q", f.Tried, f.All, f.Known, got)
			if !slices.Equal(got, want) || len(want) == 0 || f.Cut {
				t.Errorf("found %q\nwant  %q", got, want)
			}
		})
	}
}

// llama is Llama-3-8B under QLoRA, with 2048 tokens in a batch of 2 on 24 GB.
func llama() *estimate.Recipe {
	return &estimate.Recipe{
		Path: "llama.yaml", Text: []byte(`memplan: 1
model: {hf: config.json, with: {seq: 2048}}
lora: 16
quantize: {bits: 4, dtype: bfloat16, compute_dtype: bfloat16}
train: {batch_size: 2, precision: amp-bf16, optimizer: AdamW}
device: {gpu: rtx-4090}
`),
		ReadFile: func(string) ([]byte, error) {
			return []byte(`{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
"intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}`), nil
		},
	}
}

// What makes no less of a change that will do by itself, and others beside, is not
// tried: few simulations say what is simplest.
func TestFewSimulations(t *testing.T) {
	_, f := fix(t, with(t, "gpt", "train.batch_size=64", "device.gpu=a100-40gb"), All(), Limits{Proposals: 3})
	if f.Cut || len(f.Proposals) != 3 || f.Tried > 20 {
		t.Errorf("%d proposals, %d simulations", len(f.Proposals), f.Tried)
	}
	accumulated := 0
	for _, p := range f.Proposals {
		for _, o := range p.Options {
			if o.Change.ID == "accumulate" {
				accumulated++
			}
		}
		if p.Options[0].ID() == "accumulate:4" != (len(p.Options) == 1) {
			t.Error(names(p.Options))
		}
	}
	if accumulated < 2 {
		t.Errorf("%d proposals accumulate", accumulated)
	}
}

// Changes that do not go together are found once, and left out from then on.
func TestClash(t *testing.T) {
	b := base(t, with(t, "gpt", "train.batch_size=8", "device.gpu=a100-40gb"))
	f := &fixer{ctx: context.Background(), base: b, bounds: newBounds(b.Job.Machine.Usable()), known: map[string]outcome{}, makes: map[string]bool{}}
	known := map[string]*Option{}
	c := func(ids ...string) *combination {
		var options []*Option
		for _, id := range ids {
			if known[id] == nil {
				known[id] = option(t, b, id)
			}
			options = append(options, known[id])
		}
		return b.combine(options)
	}
	f.simulate([]*combination{c("accumulate:2", "amp:bf16", "in-backward")})
	if len(f.clashes) != 1 || f.clashes[0].of.id != "accumulate:2 in-backward" {
		t.Fatalf("clashes: %v", f.clashes)
	}
	for id, want := range map[string]bool{"accumulate:2 in-backward": true, "accumulate:2 in-backward checkpoint:all": true, "amp:bf16 in-backward": false, "accumulate:2": false} {
		if f.clash(c(strings.Fields(id)...)) != want {
			t.Errorf("%s: %v", id, !want)
		}
	}
}

// What everybody would try first is proposed first, within the limits of the search
// that is made by itself: a checkpoint of each block, and nothing beside.
func TestObviousFirst(t *testing.T) {
	needs.Time(t, "plays a model of 8 billion parameters many times")
	b, f := fix(t, llama(), All(), ByItself)
	if b.Outcome.Fits() || len(f.Proposals) == 0 {
		t.Fatalf("fits: %v; %+v", b.Outcome.Fits(), f)
	}
	p := f.Proposals[0]
	if names(p.Options) != "checkpoint:all" || !p.Fits || p.Outcome.OnGPU.Stats.NumAllocRetries > 0 || !p.First {
		t.Errorf("%s, fits: %v, first: %v", names(p.Options), p.Fits, p.First)
	}
}

// Many microbatches take many events, and are what everybody would try.
func TestManyMicrobatches(t *testing.T) {
	needs.Time(t, "plays a step of 32 microbatches")
	_, f := fix(t, with(t, "bert", "train.batch_size=4096", "device.gpu=t4"), All(), ByItself)
	if len(f.Proposals) == 0 || names(f.Proposals[0].Options) != "accumulate:32" || !f.Proposals[0].First {
		t.Errorf("%+v", f)
	}
}

// What fits comes before what is tight, fewer changes come before more, well-known
// ones before clever ones, and all before what costs as much as another training.
func TestOrder(t *testing.T) {
	plain, clever := &Option{Change: Lookup("checkpoint")}, &Option{Change: Lookup("checkpoint-every")}
	c := func(id string, cost float64, tight bool, options ...*Option) *combination {
		return &combination{id: id, cost: cost, tight: tight, options: options, clever: slices.Contains(options, clever)}
	}
	want := []*combination{
		c("cheap", 2, false, plain), c("slow", 40, false, plain), c("clever", 1, false, clever), c("two", 0, false, plain, plain),
		c("two clever", 0, false, plain, clever), c("another training", 101, false, plain), c("tight", 0, true, plain),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, bySimplicity)
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%d: %s, want %s", i, got[i].id, want[i].id)
		}
	}
}

// A selective checkpoint keeps what the blocks compute in products, and is priced by
// the rest: in a network of convolutions those, which are then not computed again.
func TestSelective(t *testing.T) {
	for _, c := range []struct {
		preset, saved string
		numerics      Numerics
	}{
		{"resnet", "[convolution]", Statistics}, {"gpt", "[matmul, scaled_dot_product_attention]", Same},
	} {
		b := base(t, with(t, c.preset, "train.batch_size=8", "device.gpu=a100-40gb"))
		all, kept := option(t, b, "checkpoint:all"), option(t, b, "checkpoint-selective")
		if !strings.HasSuffix(kept.Keys[0].Value, "save: "+c.saved+"}") {
			t.Errorf("%s: %v", c.preset, kept.Keys)
		}
		plain, some := b.work([]*Option{all}), b.work([]*Option{kept})
		share := plain.Passes - b.Work.Passes
		if redone := some.Passes - b.Work.Passes; share < 0.5 || share > 1 || redone > 1e-9 || some.Backward >= plain.Backward {
			t.Errorf("%s: %.3f of the products again by a plain checkpoint, %.3f by a selective one", c.preset, share, redone)
		}
		reserved := func(o *Option) tensor.Bytes {
			p, err := (&fixer{base: b}).proposal(b.combine([]*Option{o}))
			if err != nil {
				t.Fatal(err)
			}
			return p.Outcome.Free.PeakReserved.Reserved
		}
		if x, y := reserved(all), reserved(kept); x >= y {
			t.Errorf("%s: %v reserved with a plain checkpoint, %v with a selective one", c.preset, x, y)
		}
		for _, o := range []*Option{all, kept, option(t, b, "checkpoint-every:2")} {
			if o.Numerics() != c.numerics || strings.Contains(o.Text, "updated twice") != (c.numerics == Statistics) {
				t.Errorf("%s, %s: %v, %q", c.preset, o.ID(), o.Numerics(), o.Text)
			}
		}
	}
}

// Of blocks of which every second is a checkpoint already, the others are what is left to do.
func TestCheckpointOfTheRest(t *testing.T) {
	none := base(t, with(t, "gpt", "train.batch_size=8", "device.gpu=a100-40gb"))
	some := base(t, with(t, "gpt", "train.batch_size=8", "device.gpu=a100-40gb", "train.checkpoint={every: 2}"))
	added := func(b *Base) float64 {
		return b.work([]*Option{option(t, b, "checkpoint:all")}).Passes - b.Work.Passes
	}
	if a, b := added(none), added(some); math.Abs(b/a-0.5) > 0.1 {
		t.Errorf("%.2f of a forward pass is added where nothing is checkpointed, %.2f where every second block is", a, b)
	}
	p, err := (&fixer{base: some}).proposal(some.combine([]*Option{option(t, some, "checkpoint:all")}))
	if err != nil {
		t.Fatal(err)
	}
	if was, now := some.Outcome.Free.PeakReserved.Reserved, p.Outcome.Free.PeakReserved.Reserved; now >= was {
		t.Errorf("%v are reserved with every block checkpointed, %v with every second", now, was)
	}
	for _, taken := range []string{"{every: 2, save: [matmul]}", "{every: 2, use_reentrant: true}", "true"} {
		b := base(t, with(t, "gpt", "train.batch_size=8", "train.checkpoint="+taken))
		if slices.ContainsFunc(slices.Concat(b.options(All())...), func(o *Option) bool { return o.ID() == "checkpoint:all" }) {
			t.Errorf("checkpoint: %s has blocks left to checkpoint", taken)
		}
	}
}

// A bound that was learnt from some combinations is less than what others need.
func TestBounds(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	recipes := []*estimate.Recipe{
		with(t, "gpt", "params.layers=2", "params.d=128", "params.heads=2", "params.vocab=512", "params.seq=128", "params.manual=true", "train.batch_size=8"),
		with(t, "resnet", "train.batch_size=8", "params.img=64", "train.loop=flat", "train.optimizer=AdamW"),
		with(t, "llama", "params.layers=2", "params.vocab=512", "params.seq=64", "train.zero_grad.set_to_none=false", "train.precision=amp-bf16"),
		with(t, "mlp", "params.sizes=[256, 256, 256]", "train.optimizer=RMSprop", "train.loop=flat", "parallel.ddp=2"),
		{Path: "small.yaml", Text: []byte(`memplan: 1
model: {preset: hf/llama, with: {num_hidden_layers: 2, hidden_size: 128, intermediate_size: 256, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 512, seq: 64}}
train: {batch_size: 4, optimizer: AdamW}
`)},
		with(t, "gpt", "params.layers=2", "params.d=128", "params.heads=2", "params.vocab=512", "params.seq=128", "device.gpu=t4"),
	}
	n := 20
	switch {
	case *all:
		n = 60
	case testing.Short():
		recipes = recipes[:1]
	}
	for _, r := range recipes {
		b := base(t, r)
		groups := b.options(All())
		known := newBounds(0)
		tested, useful := 0, 0
		for range n {
			var chosen []*Option
			for _, g := range groups {
				if rng.IntN(len(groups)) < 3 {
					chosen = append(chosen, g[rng.IntN(len(g))])
				}
			}
			c := b.combine(chosen)
			j, err := r.Job(c.keys()...)
			if err != nil {
				continue
			}
			o, err := estimate.Try(j)
			if err != nil {
				continue
			}
			least := known.least(c)
			peak := known.learn(c, o)
			tested++
			if least > 0 {
				useful++
			}
			if least > peak {
				t.Errorf("%s: %s needs %v, and others said at least %v", r.Path, c.id, peak, least)
			}
		}
		t.Logf("%s: %d combinations, of %d something was known before", r.Path, tested, useful)
	}
}

// A change that is idle beside others leaves what lives on the GPU as it is.
func TestIdle(t *testing.T) {
	r := with(t, "gpt", "params.layers=2", "params.d=128", "params.heads=2", "params.vocab=512", "params.seq=128", "train.batch_size=4")
	b := base(t, r)
	peak := func(options ...*Option) tensor.Bytes {
		j, err := r.Job(b.combine(options).keys()...)
		if err != nil {
			return 0 // they clash
		}
		o, err := estimate.Run(j)
		if err != nil {
			t.Fatal(err)
		}
		return o.Free.PeakAllocated.Allocated
	}
	all, pairs := slices.Concat(b.options(All())...), 0
	for i, x := range all {
		for _, y := range all[:i] {
			if both := []*Option{y, x}; idle(both) && x.Change.Group != y.Change.Group {
				if n := peak(both...); n > 0 && n != min(peak(x), peak(y)) {
					t.Errorf("%s and %s take %v, one of them %v and %v", y.ID(), x.ID(), n, peak(y), peak(x))
				}
				pairs++
			}
		}
	}
	if pairs == 0 {
		t.Error("no change is idle beside another")
	}
}

// jobs are specs that do not fit, by preset, GPU and keys.
var jobs = []struct{ preset, gpu, keys string }{
	{"mlp", "rtx-3060", "params.sizes=[16384, 16384, 16384, 16384] train.optimizer=AdamW"},
	{"mha", "t4", "train.batch_size=8192"},
	{"autoencoder", "t4", "train.batch_size=65536"},
	{"gpt", "rtx-3060", ""},
	{"gpt", "rtx-3060", "train.batch_size=32"},
	{"gpt", "t4", "train.batch_size=16"},
	{"gpt", "v100-16gb", "train.batch_size=16 train.optimizer={AdamW: {fused: true}}"},
	{"gpt", "rtx-4090", "train.batch_size=16 params.manual=true"},
	{"gpt", "rtx-4090", "train.batch_size=24 train.zero_grad={set_to_none: false}"},
	{"gpt", "rtx-3060", "params.layers=24 params.d=1024 params.heads=16 train.batch_size=4"},
	{"gpt2", "a100-40gb", "train.batch_size=48"},
	{"bert", "rtx-3060", "train.batch_size=128"},
	{"bert", "t4", "params.seq=512 train.batch_size=64 train.precision=amp-fp16"},
	{"llama", "rtx-3060", "train.batch_size=16"},
	{"llama", "rtx-3060", "params.layers=12 params.d=1024 params.heads=16 params.kv=16 params.ff=2752 train.batch_size=8"},
	{"llama", "rtx-3090", "train.batch_size=64 train.precision=bf16"},
	{"vit", "rtx-3060", "train.batch_size=256"},
	{"vision_transformer", "rtx-3060", "train.batch_size=128"},
	{"resnet", "rtx-3060", "train.batch_size=1024"},
	{"resnet", "t4", "params.depth=50 train.batch_size=256"},
	{"resnet", "rtx-3060", "params.depth=152 train.batch_size=96 train.optimizer=AdamW"},
	{"vgg", "rtx-3060", "train.batch_size=256"},
	{"densenet", "rtx-3060", "train.batch_size=128"},
	{"efficientnet", "rtx-3060", "train.batch_size=256"},
	{"convnext", "t4", "train.batch_size=256"},
	{"swin", "rtx-3060", "train.batch_size=128"},
	{"unet", "rtx-3060", "train.batch_size=256"},
	{"mlp_mixer", "rtx-3060", "train.batch_size=256"},
	{"lstm", "rtx-3060", "train.batch_size=4096"},
	{"alexnet", "t4", "train.batch_size=8192 train.loop=flat"},
	{"regnet", "rtx-3060", "train.batch_size=1024"},
	{"dlrm", "t4", "train.batch_size=4194304"},
}

// words cuts keys at spaces outside of brackets.
func words(s string) []string {
	var out []string
	depth, from := 0, 0
	for i, c := range s + " " {
		switch {
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ' ' && depth == 0:
			if i > from {
				out = append(out, s[from:i])
			}
			from = i + 1
		}
	}
	return out
}

// Of jobs that do not fit, the proposals do when they are made.
func TestProposals(t *testing.T) {
	list := jobs
	if testing.Short() {
		list = list[:3]
	}
	for _, c := range list {
		t.Run(c.preset+" "+c.gpu+" "+c.keys, func(t *testing.T) {
			t.Parallel()
			r := with(t, c.preset, append(words(c.keys), "device.gpu="+c.gpu)...)
			b, f := fix(t, r, All(), Limits{Proposals: 1, Events: 120_000})
			if b.Outcome.Fits() {
				t.Fatal("it fits as it is")
			}
			if len(f.Proposals) == 0 {
				t.Fatalf("nothing found: %d of %d simulated, cut: %v", f.Tried, f.All, f.Cut)
			}
			for _, p := range f.Proposals {
				changed := *r
				for _, a := range Arguments(r, p.Keys) {
					key, ok := strings.CutPrefix(a, "--set ")
					if !ok {
						t.Errorf("argument %s", a)
					}
					changed.Options.Set = append(slices.Clone(changed.Options.Set), strings.Trim(key, "'"))
				}
				if o := base(t, &changed).Outcome; !o.Fits() || o.Free.PeakReserved.Reserved != p.Outcome.Free.PeakReserved.Reserved {
					t.Errorf("%s does not fit when it is made", names(p.Options))
				}
				if j, err := r.Job(p.Keys...); err != nil {
					t.Error(err)
				} else if o, err := estimate.Run(j); err != nil || !reflect.DeepEqual(o.Report(), p.Outcome.Report()) {
					t.Errorf("%s: the outcome is not that of the job run by itself: %v", names(p.Options), err)
				}
				t.Logf("%s: cost %.1f, time %.2f; %d of %d simulated, %d excluded, cut: %v", names(p.Options), p.Cost, p.Slowdown, f.Tried, f.All, f.Known, f.Cut)
			}
		})
	}
}

// Where nothing fits, the least that was found is said.
func TestNothingHelps(t *testing.T) {
	_, f := fix(t, with(t, "gpt", "device.gpu=t4", "device.memory=300MiB"), some("accumulate", "checkpoint", "8-bit"), Limits{Proposals: 3})
	if len(f.Proposals) != 0 || f.Smallest == nil || f.Smallest.Fits || f.Cut {
		t.Errorf("%+v", f)
	}
	if f.Tried+f.Known < 10 {
		t.Errorf("%d simulated, %d excluded", f.Tried, f.Known)
	}
}

// Host memory counts.
func TestHostMemory(t *testing.T) {
	offload := some("offload-activations")
	keys := []string{"device.gpu=rtx-3060"}
	if _, f := fix(t, with(t, "gpt", keys...), offload, Limits{Proposals: 1}); len(f.Proposals) != 1 {
		t.Errorf("without a limit: %+v", f)
	}
	if _, f := fix(t, with(t, "gpt", append(keys, "device.host_ram=8GiB")...), offload, Limits{Proposals: 1}); len(f.Proposals) != 0 {
		t.Errorf("with 8 GiB: %s", names(f.Proposals[0].Options))
	}
}

// A budget that is used up is said, and results do not depend on it otherwise.
func TestCut(t *testing.T) {
	r := with(t, "gpt", "device.gpu=rtx-3060", "train.batch_size=32")
	_, f := fix(t, r, All(), Limits{Proposals: 5, Events: 1})
	if !f.Cut || f.Tried == 0 {
		t.Errorf("%+v", f)
	}
}

// In a job that fits, what is named frees a hundredth at the least, and of the
// values of one change a dearer one more than a cheaper one; what is well known
// comes first.
func TestSave(t *testing.T) {
	r := with(t, "gpt2", "device.gpu=a100-80gb", "train.batch_size=8")
	b := base(t, r)
	f, err := Save(context.Background(), r, b.Outcome, some("fused", "8-bit", "accumulate", "checkpoint", "checkpoint-every", "expandable-segments"))
	if err != nil || len(f.Proposals) < 3 || f.Tried <= len(f.Proposals) {
		t.Fatalf("%+v, %v", f, err)
	}
	before := b.Outcome.Free.PeakReserved.Reserved
	last, cost, clever := map[*Change]tensor.Bytes{}, 0.0, false
	for _, p := range f.Proposals {
		c, now := p.Options[0].Change, p.Outcome.Free.PeakReserved.Reserved
		if c.Clever != clever {
			cost = 0
		}
		if now > before-before/100 || p.Cost < cost || clever && !c.Clever || last[c] > 0 && now >= last[c] {
			t.Errorf("%s costs %g after %g: %v of %v, a cheaper value %v", names(p.Options), p.Cost, cost, now, before, last[c])
		}
		last[c], cost, clever = now, p.Cost, c.Clever
	}
}

func TestFixCancelled(t *testing.T) {
	r := with(t, "gpt", "device.gpu=rtx-3060")
	b := base(t, r)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Fix(ctx, r, b.Outcome, All(), Limits{Proposals: 1}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Save(ctx, r, b.Outcome, All()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
