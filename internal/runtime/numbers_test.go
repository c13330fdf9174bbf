package runtime

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	commandline "flag"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/exporttorch"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// With -numbers-python, TestAgainstPyTorch trains the jobs of -numbers-specs in PyTorch
// and here; with -numbers-out it records those that are equal. The recording is
// made again with
//
//	go test ./internal/runtime -run AgainstPyTorch -numbers-python python3 -numbers-specs ../../testdata/numbers/numbers.json.gz -numbers-out ../../testdata/numbers/numbers.json.gz
var (
	numbersPython = commandline.String("numbers-python", "", "command that runs Python with PyTorch")
	numbersSpecs  = commandline.String("numbers-specs", "", "files of the specs: YAML, or recordings of programs (a pattern)")
	numbersOut    = commandline.String("numbers-out", "", "recording to write")
)

const (
	numbersFiles = "numbers*.json.gz" // in testdata/numbers: of models, of single operators (numbers_ops*), of ways to train (numbers_training) and of optimizers of other packages
	numbersSteps = 3
	numbersMost  = 1536 * tensor.MiB // of memory, of jobs that are compared
)

// numbers are what training a job from known weights on known batches gives: the
// value of each loss, and how each parameter and buffer changed, as the product
// with known numbers and as the norm.
type numbers struct {
	Name    string                `json:"name"`
	Spec    string                `json:"spec,omitempty"`
	Losses  []float64             `json:"losses"`
	Changes map[string][2]float64 `json:"changes"`
	Error   string                `json:"error,omitempty"`
}

// digits are numbers in [0, 1) that a name stands for, as testdata/train_numbers.py
// makes them: splitmix64 of the 64-bit FNV-1a hash of the name.
func digits(name string, n int64) []float64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	start := h.Sum64()
	out := make([]float64, n)
	for i := range out {
		z := uint64(i+1)*0x9e3779b97f4a7c15 + start
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		out[i] = float64((z^z>>31)>>11) / (1 << 53)
	}
	return out
}

// known is a backend whose weights and batches are functions of their names.
type known struct {
	tangent
	uses    Uses
	started map[string][]float64
	losses  []float64
	seen    map[[2]int64]bool // blocks of parameters and buffers
}

func (k *known) Initialize(t *op.Tensor, of python.Initial) error {
	place := [2]int64{int64(autograd.BlockOf(t)), t.Offset} // the parameters of a recurrent layer share a block
	if err := k.Executor.Initialize(t, of); err != nil || !of.Model || k.seen[place] {
		return err
	}
	k.random = 0
	k.seen[place] = true
	name := of.Name
	if of.Shared { // a copy of another
		v, err := k.Read(t)
		k.started[name] = v
		return err
	}
	if !t.DType.IsFloating() {
		k.started[name] = make([]float64, t.Numel())
		return nil
	}
	v := digits(name, t.Numel())
	for i, u := range v {
		switch {
		case t.Rank() >= 2:
			v[i] = (2*u - 1) * math.Sqrt(3/math.Floor(float64(t.Numel())/float64(t.Dim(0))))
		case strings.HasSuffix(name, "weight"), strings.HasSuffix(name, "running_var"):
			v[i] = 0.5 + u
		default:
			v[i] = 0.2 * (2*u - 1)
		}
	}
	data := tensor.Encode(t.DType, v)
	k.started[name] = tensor.Decode(t.DType, data)
	return k.write(t, data)
}

// Values implements Source.
func (k *known) Values(n int, in program.Input) ([]byte, error) {
	v := digits(fmt.Sprintf("%s/%d", in.Name, n), tensor.D(in.Size...).Numel())
	bound := k.uses.Bounds[in.Name]
	for i, u := range v {
		switch {
		case bound > 0:
			v[i] = math.Floor(u * float64(bound))
		case in.DType.IsFloating():
			v[i] = 4*u - 2
		default:
			v[i] = 1
		}
	}
	return tensor.Encode(in.DType, v), nil
}

func (k *known) Loss(t *op.Tensor) error {
	v, err := k.scalar(t)
	k.losses = append(k.losses, v)
	return err
}

func (k *known) Step(o *program.Optimizer, groups []optim.Group) error {
	return k.Executor.Step(o, groups)
}

// errRandom says that a job draws random numbers, which PyTorch draws otherwise.
var errRandom = errors.New("the job draws random numbers")

// trained are the numbers of a job, in float64.
func trained(j *estimate.Job, uses Uses) (*numbers, error) {
	device := cpu.New(4 * tensor.GiB)
	defer device.Close()
	alloc, err := allocsim.New(j.Machine.Conf, device, allocsim.Options{})
	if err != nil {
		return nil, err
	}
	k := &known{uses: uses, started: map[string][]float64{}, seen: map[[2]int64]bool{}}
	k.Executor = NewExecutor(device, alloc, k, 1)
	k.poison = true
	if _, err := engine.Play(j.Program, j.Machine.Env, k, numbersSteps); err != nil {
		return nil, err
	}
	if k.random != 0 {
		return nil, errRandom
	}
	n := &numbers{Losses: k.losses, Changes: map[string][2]float64{}}
	for name, was := range k.started {
		now, err := k.Read(k.weights.of[name])
		if err != nil {
			return nil, err
		}
		product, squares := 0.0, 0.0
		for i, u := range digits(name+"/change", int64(len(now))) {
			d := now[i] - was[i]
			product += d * (2*u - 1)
			squares += d * d
		}
		n.Changes[name] = [2]float64{product, math.Sqrt(squares)}
	}
	return n, k.release()
}

// differences tell how far two sets of numbers are apart, the worst first.
func differences(got, want *numbers) []string {
	type far struct {
		by   float64
		text string
	}
	var all []far
	hold := func(what string, got, want, scale float64) {
		if d := math.Abs(got-want) / (scale + 1e-3); !(d <= 1e-6) {
			all = append(all, far{d, fmt.Sprintf("%s: %.9g, PyTorch %.9g", what, got, want)})
		}
	}
	if len(got.Losses) != len(want.Losses) {
		all = append(all, far{math.Inf(1), fmt.Sprintf("%d losses, PyTorch %d", len(got.Losses), len(want.Losses))})
	}
	for i := range min(len(got.Losses), len(want.Losses)) {
		hold(fmt.Sprintf("loss %d", i), got.Losses[i], want.Losses[i], math.Abs(want.Losses[i]))
	}
	for name, w := range want.Changes {
		g, ok := got.Changes[name]
		if !ok {
			all = append(all, far{math.Inf(1), name + ": not there"})
		}
		hold(name, g[0], w[0], w[1])
		hold(name+" (norm)", g[1], w[1], w[1])
	}
	if len(got.Changes) != len(want.Changes) {
		all = append(all, far{math.Inf(1), fmt.Sprintf("%d parameters and buffers, PyTorch %d", len(got.Changes), len(want.Changes))})
	}
	slices.SortFunc(all, func(a, b far) int { return cmp.Or(cmp.Compare(b.by, a.by), strings.Compare(a.text, b.text)) })
	var out []string
	for _, f := range all {
		out = append(out, f.text)
	}
	return out
}

// parsed is the job of a spec, with everything in float64.
func parsed(name, text string) (*estimate.Job, error) {
	s, err := spec.Parse(name, []byte(text), spec.Options{})
	if err != nil {
		return nil, err
	}
	j, err := estimate.NewJob(s, nil)
	if err != nil {
		return nil, err
	}
	program.AsFloat64(j.Program)
	return j, nil
}

// inPyTorch are the numbers of jobs by PyTorch, under their names.
func inPyTorch(t *testing.T, python string, jobs map[string]*estimate.Job, uses map[string]Uses) map[string]*numbers {
	t.Helper()
	type input struct {
		Name  string  `json:"name"`
		Size  []int64 `json:"size"`
		DType string  `json:"dtype"`
		Bound int64   `json:"bound"`
	}
	type work struct {
		Name   string   `json:"name"`
		Script string   `json:"script"`
		Models []string `json:"models"`
		Inputs []input  `json:"inputs"`
		Eval   []input  `json:"eval_inputs"`
	}
	var list []work
	for name, j := range jobs {
		var b bytes.Buffer
		if err := exporttorch.Write(&b, j.Program, exporttorch.Options{Steps: numbersSteps}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		w := work{Name: name, Script: b.String()}
		for _, m := range j.Program.Models {
			w.Models = append(w.Models, m.Name)
		}
		inputs := func(ins []program.Input) (out []input) {
			for _, in := range ins {
				out = append(out, input{in.Name, append([]int64{}, in.Size...), in.DType.String(), uses[name].Bounds[in.Name]})
			}
			return out
		}
		w.Inputs = inputs(j.Program.Inputs)
		if e := j.Program.Eval; e != nil {
			w.Eval = inputs(e.Inputs)
		}
		list = append(list, w)
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	args := append(strings.Fields(python), "testdata/train_numbers.py")
	c := exec.Command(args[0], args[1:]...)
	c.Stdin, c.Stderr = bytes.NewReader(text), os.Stderr
	said, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*numbers{}
	for d := json.NewDecoder(bytes.NewReader(said)); d.More(); {
		n := &numbers{}
		if err := d.Decode(n); err != nil {
			t.Fatal(err)
		}
		out[n.Name] = n
	}
	return out
}

// specsOf reads the specs of files: YAML, or recordings of programs.
func specsOf(t *testing.T, pattern string) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files (%v)", pattern, err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, ".json.gz") {
			for _, n := range recorded(t, f) {
				out[n.Name] = n.Spec
			}
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".yaml")] = string(text)
	}
	return out
}

func recorded(t *testing.T, file string) (out []*numbers) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err == nil {
		err = json.NewDecoder(z).Decode(&out)
	}
	if err != nil {
		t.Fatal(file, err)
	}
	return out
}

// record writes numbers in the order of their names.
func record(t *testing.T, file string, all []*numbers) {
	t.Helper()
	slices.SortFunc(all, func(a, b *numbers) int { return strings.Compare(a.Name, b.Name) })
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := errors.Join(json.NewEncoder(z).Encode(all), z.Close(), os.WriteFile(file, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// TestNumbers trains the jobs of the recording, and holds every loss and what
// became of every parameter and buffer against PyTorch. A short test takes some.
func TestNumbers(t *testing.T) {
	files, err := filepath.Glob(needs.File(t, "numbers", numbersFiles))
	if err != nil {
		t.Fatal(err)
	}
	var all []*numbers
	for _, f := range files {
		all = append(all, recorded(t, f)...)
	}
	for i, want := range all {
		if testing.Short() && i%8 != 0 {
			continue
		}
		j, err := parsed(want.Name+".yaml", want.Spec)
		if err != nil {
			t.Errorf("%s: %v", want.Name, err)
			continue
		}
		u, err := Probe(j.Program, j.Machine.Env, &cpu.Device{})
		if err != nil {
			t.Errorf("%s: %v", want.Name, err)
			continue
		}
		got, err := trained(j, u)
		if err != nil {
			t.Errorf("%s: %v", want.Name, err)
			continue
		}
		if d := differences(got, want); d != nil {
			t.Errorf("%s: %d differences:\n  %s", want.Name, len(d), strings.Join(d[:min(3, len(d))], "\n  "))
		}
	}
}

// TestAgainstPyTorch compares jobs with PyTorch, and records what is equal.
func TestAgainstPyTorch(t *testing.T) {
	if *numbersPython == "" {
		t.Skip("needs -numbers-python, a command that runs Python with PyTorch: it records, and TestNumbers holds what is recorded")
	}
	jobs, uses, got := map[string]*estimate.Job{}, map[string]Uses{}, map[string]*numbers{}
	var not []string
	specs := specsOf(t, *numbersSpecs)
	for name, text := range specs {
		j, err := parsed(name+".yaml", text)
		if err != nil {
			not = append(not, err.Error())
			continue
		}
		u, err := Probe(j.Program, j.Machine.Env, &cpu.Device{})
		if err != nil {
			not = append(not, name+": "+err.Error())
			continue
		}
		if o, err := estimate.Run(j); err != nil || o.Free.PeakAllocated.Allocated > numbersMost {
			not = append(not, fmt.Sprintf("%s: too large (%v)", name, err))
			continue
		}
		n, err := trained(j, u)
		switch {
		case err == errRandom:
			not = append(not, name+": "+err.Error())
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			jobs[name], uses[name], got[name] = j, u, n
		}
	}
	slices.Sort(not)
	t.Logf("%d jobs run; not:\n%s", len(got), strings.Join(not, "\n"))
	var equal []*numbers
	for name, w := range inPyTorch(t, *numbersPython, jobs, uses) {
		if w.Error != "" {
			t.Logf("%s: PyTorch: %s", name, w.Error)
			continue
		}
		if d := differences(got[name], w); d != nil {
			t.Errorf("%s: %d differences:\n  %s", name, len(d), strings.Join(d[:min(3, len(d))], "\n  "))
			continue
		}
		w.Spec = specs[name]
		equal = append(equal, w)
	}
	if *numbersOut != "" {
		record(t, *numbersOut, equal)
	}
}
