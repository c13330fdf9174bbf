package data

import (
	"fmt"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// Options say how the files become batches.
type Options struct {
	Files   map[string]*File // by the input's name; "" for a file of all inputs
	Inputs  []program.Input
	Bounds  map[string]int64 // of inputs that are indices: how many rows or classes there are
	Targets map[string]bool  // the inputs that name classes
	Batch   int64
	Seed    uint64
	Pairs   bool // texts as a byte-pair encoding rather than as bytes
}

// Source makes batches of the samples of files. In each epoch, every sample
// comes once, in an order of its own; what does not fill a last batch waits for
// the next epoch.
type Source struct {
	o      Options
	inputs map[string]feed
	count  int64 // samples
}

// feed fills one input for a sample.
type feed func(sample int64, out []float64) error

// New checks that the files fit the inputs.
func New(o Options) (*Source, error) {
	s := &Source{o: o, inputs: map[string]feed{}, count: -1}
	for name := range o.Files {
		if name != "" && !slices.ContainsFunc(o.Inputs, func(in program.Input) bool { return in.Name == name }) {
			var names []string
			for _, in := range o.Inputs {
				names = append(names, in.Name)
			}
			return nil, fmt.Errorf("the model has no input %q; it has %v", name, names)
		}
	}
	tokens := map[string][]int64{}
	for _, in := range o.Inputs {
		f := o.Files[in.Name]
		if f == nil {
			f = o.Files[""]
		}
		if f == nil {
			return nil, fmt.Errorf("there is no file for input %q", in.Name)
		}
		var err error
		switch {
		case f.Text != nil:
			err = s.text(in, f, tokens)
		case f.Array != nil:
			err = s.array(in, f.Array)
		case in.DType.IsFloating():
			err = s.array(in, f.Images)
		default:
			err = s.array(in, f.Labels)
		}
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", in.Name, err)
		}
	}
	if s.count < o.Batch {
		return nil, fmt.Errorf("there are %d samples; a batch takes %d", s.count, o.Batch)
	}
	return s, nil
}

// limit notes that an input has so many samples; those that all have count.
func (s *Source) limit(n int64) {
	if s.count < 0 || n < s.count {
		s.count = n
	}
}

// each is the number of elements of one sample of an input.
func each(in program.Input) int64 { return tensor.D(in.Size...).Numel() / max(in.Size[0], 1) }

// array feeds an input from an array. Bytes become floating numbers of mean 0 and
// deviation 1 over the whole array.
func (s *Source) array(in program.Input, a *Array) error {
	n := each(in)
	if a.Each() != n {
		return fmt.Errorf("%s has samples of shape %s, %d elements; the input takes shape %s, %d", a.Name,
			tensor.SizeString(a.Size[1:]), a.Each(), tensor.SizeString(in.Size[1:]), n)
	}
	s.limit(a.Samples())
	if in.DType.IsFloating() {
		shift, scale := 0.0, 1.0
		if a.DType == tensor.Uint8 {
			shift, scale = moments(a.data)
		}
		s.inputs[in.Name] = func(sample int64, out []float64) error {
			a.At(sample, out)
			for i := range out {
				out[i] = (out[i] - shift) * scale
			}
			return nil
		}
		return nil
	}
	if a.DType.IsFloating() {
		return fmt.Errorf("%s holds floating numbers, the input takes %v", a.Name, in.DType)
	}
	bound := s.o.Bounds[in.Name]
	s.inputs[in.Name] = func(sample int64, out []float64) error {
		a.At(sample, out)
		for _, v := range out {
			if bound > 0 && (v < 0 || v >= float64(bound)) {
				return fmt.Errorf("%s, sample %d: %v is outside of 0 … %d", a.Name, sample, v, bound-1)
			}
		}
		return nil
	}
	return nil
}

// moments are the mean of bytes and one over their standard deviation.
func moments(b []byte) (mean, scale float64) {
	var counts [256]float64
	for _, v := range b {
		counts[v]++
	}
	var sum, squares float64
	for v, n := range counts {
		sum += n * float64(v)
		squares += n * float64(v) * float64(v)
	}
	n := float64(len(b))
	mean = sum / n
	return mean, 1 / math.Sqrt(max(squares/n-mean*mean, 1e-12))
}

// text feeds an input from windows of a text; targets see the window that starts
// one token later.
func (s *Source) text(in program.Input, f *File, tokens map[string][]int64) error {
	bound := s.o.Bounds[in.Name]
	if in.DType.IsFloating() || bound == 0 {
		return fmt.Errorf("%s is a text; the input takes no tokens", f.Name)
	}
	if tokens[f.Name] == nil {
		vocab := bound
		for _, b := range s.o.Bounds {
			vocab = min(vocab, b)
		}
		tokens[f.Name] = Bytes(f.Text)
		if s.o.Pairs {
			tokens[f.Name] = Pairs(f.Text, vocab)
		}
		for i, t := range tokens[f.Name] {
			if t >= vocab {
				return fmt.Errorf("%s: byte %d of the text is token %d; the model knows %d", f.Name, i, t, vocab)
			}
		}
	}
	n, shift, all := each(in), int64(0), tokens[f.Name]
	if s.o.Targets[in.Name] {
		shift = 1
	}
	if int64(len(all)) < n+1 {
		return fmt.Errorf("%s has %d tokens; a sample takes %d and the one behind them", f.Name, len(all), n)
	}
	s.limit((int64(len(all)) - 1) / n)
	s.inputs[in.Name] = func(sample int64, out []float64) error {
		for i := range out {
			out[i] = float64(all[sample*n+int64(i)+shift])
		}
		return nil
	}
	return nil
}

// Values returns an input of batch n, from 0, row-major and little-endian.
func (s *Source) Values(n int, in program.Input) ([]byte, error) {
	feed := s.inputs[in.Name]
	if feed == nil {
		return nil, fmt.Errorf("there is no data")
	}
	size := each(in)
	out := make([]float64, size*in.Size[0])
	batches := s.count / s.o.Batch
	epoch, at := uint64(int64(n)/batches), int64(n)%batches*s.o.Batch
	for i := range in.Size[0] {
		if err := feed(s.sample(epoch, (at+i)%s.count), out[i*size:(i+1)*size]); err != nil {
			return nil, err
		}
	}
	return tensor.Encode(in.DType, out), nil
}

// sample is which sample comes as the i-th of an epoch: a permutation, made of a
// balanced Feistel network over the next power of four, of which what is out of
// range is skipped.
func (s *Source) sample(epoch uint64, i int64) int64 {
	half := uint(1)
	for int64(1)<<(2*half) < s.count {
		half++
	}
	mask := uint64(1)<<half - 1
	x := uint64(i)
	for {
		l, r := x>>half, x&mask
		for round := range uint64(4) {
			h := (r ^ round<<32 ^ epoch<<40 ^ s.o.Seed) * 0x9e3779b97f4a7c15
			h ^= h >> 29
			l, r = r, l^(h*0xbf58476d1ce4e5b9>>33)&mask
		}
		if x = l<<half | r; int64(x) < s.count {
			return int64(x)
		}
	}
}
