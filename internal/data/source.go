package data

import (
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// Options say how the files become batches.
type Options struct {
	Files      Files
	Validation Files   // what evaluations go over; nil: there are none, or Share says
	Share      float64 // of the samples, which evaluations go over and training leaves out; 0: none
	Inputs     []program.Input
	Bounds     map[string]int64 // of inputs that are indices: how many rows or classes there are
	Targets    map[string]bool  // the inputs that name classes
	Batch      int64
	Seed       uint64
	InOrder    bool // samples come in the order of the files, in each epoch
	Pairs      bool // texts as a byte-pair encoding rather than as bytes
}

// Files are those of each input, by its name, whose samples follow one another; under ""
// those of all inputs.
type Files map[string][]*File

// of are the files of an input.
func (f Files) of(input string) []*File {
	if list := f[input]; list != nil {
		return list
	}
	return f[""]
}

// Set are the samples that a job trains on, and those that evaluations go over.
type Set struct {
	o          Options
	train, val part
}

// part is some of the samples of files.
type part struct {
	inputs map[string]feed
	first  string // the input that said how many samples there are
	count  int64  // samples; negative before an input said
	pick   func(i int64) int64
}

// feed fills one input for a sample.
type feed func(sample int64, out []float64) error

// New checks that the files fit the inputs.
func New(o Options) (*Set, error) {
	s := &Set{o: o, train: newPart(), val: newPart()}
	v := &vocabulary{pairs: o.Pairs, texts: map[string]*encoded{}}
	for _, in := range o.Inputs {
		files := o.Files.of(in.Name)
		if files == nil {
			return nil, fmt.Errorf("there is no file for input %q", in.Name)
		}
		validation := o.Validation.of(in.Name)
		if o.Validation != nil && validation == nil {
			return nil, fmt.Errorf("there is no file for input %q in evaluations", in.Name)
		}
		if err := s.add(in, files, validation, v); err != nil {
			return nil, fmt.Errorf("input %q: %w", in.Name, err)
		}
	}
	if o.Share > 0 {
		s.hold(len(v.texts) > 0)
	}
	if n := s.train.count; n < o.Batch {
		return nil, fmt.Errorf("there are %d samples to train on; a batch takes %d", n, o.Batch)
	}
	return s, nil
}

func newPart() part {
	return part{inputs: map[string]feed{}, count: -1, pick: func(i int64) int64 { return i }}
}

// add reads the samples of an input, and those of it that evaluations go over.
func (s *Set) add(in program.Input, files, validation []*File, v *vocabulary) error {
	if files[0].Text != nil {
		texts, err := v.encode(s, in, files)
		if err == nil {
			err = s.text(&s.train, in, texts)
		}
		if err != nil || validation == nil {
			return err
		}
		if texts, err = v.encode(s, in, validation); err == nil {
			err = s.text(&s.val, in, texts)
		}
		return err
	}
	c, err := joined(in, files)
	if err != nil {
		return err
	}
	shift, scale := 0.0, 1.0
	if in.DType.IsFloating() && c.parts[0].DType == tensor.Uint8 {
		shift, scale = c.moments()
	}
	if err := s.array(&s.train, in, c, shift, scale); err != nil || validation == nil {
		return err
	}
	if c, err = joined(in, validation); err != nil {
		return err
	}
	return s.array(&s.val, in, c, shift, scale)
}

// counted notes how many samples an input has, which are as many as the others have.
func (p *part) counted(in program.Input, n int64) error {
	if p.count >= 0 && p.count != n {
		return fmt.Errorf("its files have %d samples, those of input %q %d", n, p.first, p.count)
	}
	if p.count < 0 {
		p.count, p.first = n, in.Name
	}
	return nil
}

// hold leaves a share of the samples for evaluations: of texts the end, of other samples
// some of all, which the seed says.
func (s *Set) hold(text bool) {
	all := s.train.count
	n := int64(math.Round(s.o.Share * float64(all)))
	order := func(i int64) int64 { return i }
	if !text {
		order = func(i int64) int64 { return permuted(s.o.Seed, splitting, i, all) }
	}
	s.val = part{inputs: s.train.inputs, first: s.train.first, count: n, pick: func(i int64) int64 { return order(all - n + i) }}
	s.train.count, s.train.pick = all-n, order
}

// splitting is the epoch whose order says which samples are for evaluations.
const splitting = 1<<24 - 1

// Bytes is what the data take of memory.
func (s *Set) Bytes() tensor.Bytes {
	seen, sum := map[*File]bool{}, 0
	for _, files := range []Files{s.o.Files, s.o.Validation} {
		for _, list := range files {
			for _, f := range list {
				if seen[f] {
					continue
				}
				seen[f] = true
				sum += len(f.Text) * int(1+tensor.Int64.Size()) // and its tokens
				for _, a := range []*Array{f.Array, f.Images, f.Labels} {
					if a != nil {
						sum += len(a.data)
					}
				}
			}
		}
	}
	return tensor.Bytes(sum)
}

// Training are batches to train on. In each epoch, every sample comes once, in an order of
// its own unless the options say otherwise; what does not fill a last batch waits for the
// next epoch.
func (s *Set) Training() *Source {
	return &Source{part: s.train, batch: s.o.Batch, seed: s.o.Seed, shuffle: !s.o.InOrder}
}

// Validation are batches of so many samples that evaluations go over, in their order; nil
// if there are none.
func (s *Set) Validation(batch int64) *Source {
	if s.val.count < 0 {
		return nil
	}
	return &Source{part: s.val, batch: batch}
}

// Again are batches of the samples to train on, in their order, for evaluations of a set
// that has none for them.
func (s *Set) Again(batch int64) *Source { return &Source{part: s.train, batch: batch} }

// each is the number of elements of one sample of an input.
func each(in program.Input) int64 { return tensor.D(in.Size...).Numel() / max(in.Size[0], 1) }

// array feeds an input from an array, whose floating numbers are shifted and scaled.
func (s *Set) array(p *part, in program.Input, c *column, shift, scale float64) error {
	n, a := each(in), c.parts[0]
	if a.Each() != n {
		return fmt.Errorf("%s has samples of shape %s, %d elements; the input takes shape %s, %d", a.Name,
			tensor.SizeString(a.Size[1:]), a.Each(), tensor.SizeString(in.Size[1:]), n)
	}
	if err := p.counted(in, c.samples()); err != nil {
		return err
	}
	if in.DType.IsFloating() {
		p.inputs[in.Name] = func(sample int64, out []float64) error {
			a, i := c.at(sample)
			a.At(i, out)
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
	p.inputs[in.Name] = func(sample int64, out []float64) error {
		a, i := c.at(sample)
		a.At(i, out)
		for _, v := range out {
			if bound > 0 && (v < 0 || v >= float64(bound)) {
				return fmt.Errorf("%s, sample %d: %v is outside of 0 … %d", a.Name, i, v, bound-1)
			}
		}
		return nil
	}
	return nil
}

// text feeds an input from windows of texts; targets see the window that starts one token
// later.
func (s *Set) text(p *part, in program.Input, all *encoded) error {
	n, shift := each(in), int64(0)
	if s.o.Targets[in.Name] {
		shift = 1
	}
	if int64(len(all.tokens)) < n+1 {
		return fmt.Errorf("%s has %d tokens; a sample takes %d and the one behind them", all.name, len(all.tokens), n)
	}
	p.inputs[in.Name] = func(sample int64, out []float64) error {
		for i := range out {
			out[i] = float64(all.tokens[sample*n+int64(i)+shift])
		}
		return nil
	}
	return p.counted(in, (int64(len(all.tokens))-1)/n)
}

// Source makes batches of samples.
type Source struct {
	part
	batch   int64
	seed    uint64
	shuffle bool
}

// Samples is how many there are.
func (s *Source) Samples() int64 { return s.count }

// Values returns an input of batch n, from 0, row-major and little-endian.
func (s *Source) Values(n int, in program.Input) ([]byte, error) {
	feed := s.inputs[in.Name]
	if feed == nil {
		return nil, fmt.Errorf("there is no data")
	}
	size := each(in)
	out := make([]float64, size*in.Size[0])
	batches := max(s.count/s.batch, 1)
	epoch, at := uint64(int64(n)/batches), int64(n)%batches*s.batch
	for i := range in.Size[0] {
		sample := (at + i) % s.count
		if s.shuffle {
			sample = permuted(s.seed, epoch, sample, s.count)
		}
		if err := feed(s.pick(sample), out[i*size:(i+1)*size]); err != nil {
			return nil, err
		}
	}
	return tensor.Encode(in.DType, out), nil
}

// permuted is which of n samples comes as the i-th of an epoch: a permutation, made of a
// balanced Feistel network over the next power of four, of which what is out of
// range is skipped.
func permuted(seed, epoch uint64, i, n int64) int64 {
	half := uint(1)
	for int64(1)<<(2*half) < n {
		half++
	}
	mask := uint64(1)<<half - 1
	x := uint64(i)
	for {
		l, r := x>>half, x&mask
		for round := range uint64(4) {
			h := (r ^ round<<32 ^ epoch<<40 ^ seed) * 0x9e3779b97f4a7c15
			h ^= h >> 29
			l, r = r, l^(h*0xbf58476d1ce4e5b9>>33)&mask
		}
		if x = l<<half | r; int64(x) < n {
			return int64(x)
		}
	}
}
