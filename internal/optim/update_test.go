package optim

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// argsOf are the arguments of an optimizer: its defaults, and others in their place.
func argsOf(t *testing.T, r *Row, given map[string]any) any {
	t.Helper()
	vals := map[string]any{}
	for _, p := range r.Signature().Params {
		if p.Default == nil {
			continue
		}
		v, err := p.Check(p.Default)
		if err != nil {
			t.Fatal(err)
		}
		vals[p.Name] = v
	}
	for name, v := range given {
		if r.Signature().Find(name) == nil {
			t.Fatalf("%s takes no %s", r.Name, name)
		}
		vals[name] = v
	}
	return op.BindArgs(r.Args, vals)
}

// tags are the arguments that a struct has fields for.
func tags(args any) []string {
	var out []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(args).Elem()) {
		if tag := f.Tag.Get("arg"); tag != "" {
			out = append(out, tag)
		}
	}
	return out
}

// TestArguments holds the fields of argument structs against signatures: one that no
// optimizer takes is never filled.
func TestArguments(t *testing.T) {
	taken := map[reflect.Type]map[string]bool{}
	for _, name := range Names() {
		r := Lookup(name)
		of := taken[reflect.TypeOf(r.Args)]
		if of == nil {
			of = map[string]bool{}
			taken[reflect.TypeOf(r.Args)] = of
		}
		for _, tag := range tags(r.Args) {
			of[tag] = of[tag] || r.Signature().Find(tag) != nil || slices.Contains(tags(&Common{}), tag)
		}
	}
	for typ, of := range taken {
		for tag, is := range of {
			if !is {
				t.Errorf("%v: no optimizer takes %s", typ, tag)
			}
		}
	}
}

// paper plays optimizers, and computes nothing.
type paper struct {
	*op.Shapes
	op.Machine
	kernels map[*kernel.Kernel]bool // that were launched
	seen    map[string]bool         // operands of them that were there
	floats  []float64               // of the last one
}

func newPaper() *paper {
	return &paper{Shapes: &op.Shapes{}, kernels: map[*kernel.Kernel]bool{}, seen: map[string]bool{}}
}

func (p *paper) Persist(t *op.Tensor) *op.Tensor { return t }
func (p *paper) Paged(tensor.Bytes)              {}
func (p *paper) Evaluate() *op.Tensor            { return nil }
func (p *paper) Values() Values                  { return nil }

func (p *paper) Apply(*kernel.Kernel, *op.Tensor, []*op.Tensor, ...float64) error { return nil }

func (p *paper) At(t *op.Tensor, l tensor.Layout) kernel.Tensor {
	return kernel.Tensor{At: 1, DType: t.DType, Size: l.Size, Stride: l.Stride}
}

func (p *paper) Launch(k *kernel.Kernel, ts []kernel.Tensor, ints []int64, floats ...float64) error {
	p.kernels[k], p.floats = true, floats
	for i := range ts {
		if !ts[i].Absent() {
			p.seen[k.Name+" "+k.Tensors[i]] = true
		}
	}
	return (&kernel.Call{Kernel: k, T: ts, I: ints, F: floats}).Check()
}

func (p *paper) OnHost(f func(a op.Arrays)) error {
	f(blank{})
	return nil
}

// blank reads ones.
type blank struct{ op.Arrays }

func (blank) Put(*op.Tensor, []float64) {}

func (blank) Get(t *op.Tensor) []float64 {
	if t == nil {
		return nil
	}
	out := make([]float64, t.Numel())
	for i := range out {
		out[i] = 1
	}
	return out
}

// TestNames computes steps of every optimizer with every flag and with momentum: a name
// of a state, an operand or a number that is misspelled is an error, or leaves an
// operand of a kernel without what it is for.
func TestNames(t *testing.T) {
	seen, kernels := map[string]bool{}, map[*kernel.Kernel]bool{}
	for _, name := range Names() {
		r := Lookup(name)
		if r.Update == nil {
			continue
		}
		variants := []map[string]any{nil}
		for _, p := range r.Signature().Params {
			switch {
			case p.Kind == op.KBool && p.Name != "differentiable":
				variants = append(variants, map[string]any{p.Name: true})
			case strings.HasSuffix(p.Name, "momentum") || p.Name == "beta1":
				variants = append(variants, map[string]any{p.Name: 0.9})
			}
		}
		for _, given := range variants {
			args := argsOf(t, r, given)
			if _, err := r.Check(args, torchver.Newest); err != nil {
				continue
			}
			x := &paper{Shapes: &op.Shapes{}, kernels: kernels, seen: seen}
			group := Group{Args: args}
			for _, size := range []tensor.Dims{tensor.D(4, 3), tensor.D(4)} {
				l := tensor.Contiguous(size)
				if r.RefuseParam == nil || r.RefuseParam(size.Slice()) == nil {
					group.Params = append(group.Params, &Param{T: x.New(l, tensor.Float32), Grad: x.New(l, tensor.Float32)})
				}
			}
			groups := []Group{group}
			r.Start(x, groups)
			for range 2 {
				r.Step(x, groups)
				if err := r.Compute(x, groups); err != nil {
					t.Errorf("%s with %v: %v", name, given, err)
				}
			}
		}
	}
	if len(kernels) < 12 {
		t.Errorf("%d kernels only", len(kernels))
	}
	for k := range kernels {
		for _, operand := range k.Tensors {
			if !seen[k.Name+" "+operand] {
				t.Errorf("%s: no state is ever %s", k.Name, operand)
			}
		}
	}
}

// TestMisspelled: a number of a formula that is no argument, one that the formula does
// not have, and a state that is no operand, are errors.
func TestMisspelled(t *testing.T) {
	k := Lion.Update.(formula[lionArgs]).kernel
	args := argsOf(t, Lion, nil).(*lionArgs)
	for _, c := range []struct {
		own   numbers
		state string
		want  string
	}{
		{numbers{"shrink": 1}, "m", ""},
		{numbers{}, "m", "no argument shrink"},
		{numbers{"shrink": 1, "shrnk": 1}, "m", "no number shrnk"},
		{numbers{"shrink": 1}, "moment", "no operand moment"},
	} {
		f := formula[lionArgs]{kernel: k, own: func(*lionArgs, *Param, int64) numbers { return c.own }}
		x := newPaper()
		l := tensor.Contiguous(tensor.D(2))
		p := &Param{T: x.New(l, tensor.Float32), Grad: x.New(l, tensor.Float32)}
		p.keep(c.state, x.New(l, tensor.Float32))
		err := f.update(x, args, p)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %s: %v", c.own, c.state, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a state that was not made can be read")
		}
	}()
	(&stepped{}).state("m")
}

// TestStepsOfGroup: AdamWScheduleFree counts the steps of a group, also those in which
// a parameter has no gradient.
func TestStepsOfGroup(t *testing.T) {
	x, l := newPaper(), tensor.Contiguous(tensor.D(2))
	p := &Param{T: x.New(l, tensor.Float32)}
	groups := []Group{{Args: argsOf(t, AdamWScheduleFree, nil), Params: []*Param{p}}}
	AdamWScheduleFree.Step(x, groups)
	p.Grad = x.New(l, tensor.Float32)
	AdamWScheduleFree.Step(x, groups)
	if err := AdamWScheduleFree.Compute(x, groups); err != nil {
		t.Fatal(err)
	}
	k := AdamWScheduleFree.Update.(formula[scheduleFreeArgs]).kernel
	if got, want := x.floats[slices.Index(k.Floats, "into")], 0.5; p.Steps != 1 || got != want {
		t.Errorf("weight of the average %v after %d steps, not %v", got, p.Steps, want)
	}
}

// TestMuonStep follows a step of Muon on a matrix of one number. Divided by its norm
// it is 1, and each iteration makes a*x + (b*x² + c*x⁴)*x of it, rounded to bfloat16.
func TestMuonStep(t *testing.T) {
	round := func(v float64) float64 { return inBFloat16([]float64{v})[0] }
	x := 1.0
	for range 5 {
		square := round(x * x)
		x = round(3.4445*x + round(-4.775*square+2.0315*square*square)*x)
	}
	s := &stepped{step: 1, size: []int{1, 1}, dtype: tensor.Float32, p: []float64{0.5}, g: []float64{2}, states: map[string][]float64{"momentum": {0}}}
	muonUpdate(argsOf(t, Muon, map[string]any{"lr": 0.1}).(*muonArgs), s)
	if want := 0.5*(1-0.1*0.1) - 0.1*x; math.Abs(s.p[0]-want) > 1e-12 {
		t.Errorf("parameter %v, not %v", s.p[0], want)
	}
	if got, want := s.state("momentum")[0], 0.05*2.0; math.Abs(got-want) > 1e-12 {
		t.Errorf("momentum %v, not %v", got, want)
	}
}

// TestMuonOrthogonal checks that a step moves a matrix along one whose rows are
// nearly orthogonal and of length about 1, whichever side is longer.
func TestMuonOrthogonal(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	args := argsOf(t, Muon, map[string]any{"lr": 1.0, "weight_decay": 0.0}).(*muonArgs)
	for _, size := range [][]int{{4, 9}, {9, 4}} {
		s := &stepped{step: 1, size: size, dtype: tensor.Float32, p: make([]float64, 36), g: make([]float64, 36), states: map[string][]float64{"momentum": make([]float64, 36)}}
		for i := range s.g {
			s.g[i] = r.NormFloat64()
		}
		muonUpdate(args, s)
		scale(s.p, -1/math.Sqrt(max(1, float64(size[0])/float64(size[1]))))
		x, m, n := s.p, size[0], size[1]
		if m > n {
			x, m, n = turned(x, m, n), n, m
		}
		for i, v := range product(x, turned(x, m, n), m, n, m) {
			if i%(m+1) == 0 && (v < 0.4 || v > 1.5) || i%(m+1) != 0 && math.Abs(v) > 0.45 {
				t.Errorf("%v: product %d of rows is %v", size, i, v)
			}
		}
	}
}

// TestEightBitSteps writes out the steps of bitsandbytes' kernels.
func TestEightBitSteps(t *testing.T) {
	w, m, v := []float64{1}, []float64{0.5}, []float64{0.25}
	argsOf(t, AdamW8bit, map[string]any{"lr": 0.1}).(*eightBitArgs).adam(2, w, []float64{2}, [][]float64{m, v})
	m2, v2, root := 0.9*0.5+0.1*2, 0.999*0.25+0.001*4, math.Sqrt(1-0.999*0.999)
	want := (1 - 0.1*root/(1-0.81)*m2/(math.Sqrt(v2)+root*1e-8)) * (1 - 0.1*0.01)
	if math.Abs(w[0]-want) > 1e-12 || math.Abs(m[0]-m2) > 1e-12 || math.Abs(v[0]-v2) > 1e-12 {
		t.Errorf("Adam: %v, %v, %v, not %v, %v, %v", w[0], m[0], v[0], want, m2, v2)
	}
	w, m = []float64{1}, []float64{-0.5}
	argsOf(t, Lion8bit, map[string]any{"lr": 0.1, "weight_decay": 0.2}).(*eightBitArgs).lion(2, w, []float64{2}, [][]float64{m})
	if want, m2 := 1*(1-0.1*0.2)+0.1, 0.99*-0.5+0.01*2; math.Abs(w[0]-want) > 1e-12 || math.Abs(m[0]-m2) > 1e-12 { // 0.9*-0.5 + 0.1*2 < 0
		t.Errorf("Lion: %v, %v, not %v, %v", w[0], m[0], want, m2)
	}
	w, v = []float64{1}, []float64{0.25}
	argsOf(t, RMSprop8bit, map[string]any{"lr": 0.1, "weight_decay": 0.2}).(*eightBitArgs).rmsprop(2, w, []float64{2}, [][]float64{v})
	v2 = 0.99*0.25 + 0.01*2.2*2.2
	if want := 1 - 0.1*2.2/(math.Sqrt(v2)+1e-8); math.Abs(w[0]-want) > 1e-12 || math.Abs(v[0]-v2) > 1e-12 {
		t.Errorf("RMSprop: %v, %v, not %v, %v", w[0], v[0], want, v2)
	}
	w, m, v = []float64{1}, []float64{0.5, -0.25}, []float64{0.25}
	argsOf(t, AdEMAMix8bit, map[string]any{"lr": 0.1, "t_alpha": int64(4)}).(*eightBitArgs).ademamix(2, w, []float64{2}, [][]float64{m, v})
	fast, slow, v2 := 0.9*0.5+0.1*2, 0.9999*-0.25+0.0001*2, 0.999*0.25+0.001*4
	want = 1*(1-0.1*0.01) - 0.1*(fast/(1-0.81)+5*0.5*slow)/(math.Sqrt(v2)/math.Sqrt(1-0.999*0.999)+1e-8)
	if math.Abs(w[0]-want) > 1e-12 || math.Abs(m[0]-fast) > 1e-12 || math.Abs(m[1]-slow) > 1e-12 || math.Abs(v[0]-v2) > 1e-12 {
		t.Errorf("AdEMAMix: %v, %v, %v, not %v, %v, %v, %v", w[0], m, v[0], want, fast, slow, v2)
	}
}

// TestStepsBefore: what the steps before have come to counts, each once: the weights of
// an average, with steps in which there was no gradient, and the product of momenta.
func TestStepsBefore(t *testing.T) {
	l := tensor.Contiguous(tensor.D(2))
	for _, c := range []struct {
		row    *Row
		given  map[string]any
		kernel *kernel.Kernel
		number string
		want   float64
	}{
		{AdamWScheduleFree, map[string]any{"lr": 1.0, "warmup_steps": int64(2)}, AdamWScheduleFree.Update.(formula[scheduleFreeArgs]).kernel, "into", 1 / (0.25 + 1 + 1 + 1)},
		{NAdam, map[string]any{"lr": 1.0, "betas": []float64{0.5, 0.9}, "momentum_decay": 0.0}, NAdam.Update.(formula[nadamArgs]).kernel, "now", 0.75 / (1 - 1.0/64)},
	} {
		x := newPaper()
		p := &Param{T: x.New(l, tensor.Float32)}
		groups := []Group{{Args: argsOf(t, c.row, c.given), Params: []*Param{p}}}
		for _, has := range []bool{true, false, true, true} {
			p.Grad = nil
			if has {
				p.Grad = x.New(l, tensor.Float32)
			}
			c.row.Step(x, groups)
			if !has {
				continue
			}
			if err := c.row.Compute(x, groups); err != nil {
				t.Fatal(err)
			}
		}
		if got := x.floats[slices.Index(c.kernel.Floats, c.number)]; math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s of %s is %v, not %v", c.number, c.row.Name, got, c.want)
		}
	}
}
