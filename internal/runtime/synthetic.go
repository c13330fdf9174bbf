package runtime

import (
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// Synthetic makes batches that a model can learn: each sample belongs to a
// class. Targets name it; floating inputs are a pattern of the class with noise
// around it; indices are words of the class among others. Where the target has
// the shape of the indices, as of a language model, both are a text and the
// text shifted by one word.
type Synthetic struct {
	seed   uint64
	uses   Uses
	text   []int64 // words of a built-in text
	order  []string
	class  int64 // how many classes there are
	shapes map[string]tensor.Dims
}

// maxClasses bounds the classes of samples, so that few steps see all of them.
const maxClasses = 10

// NewSynthetic returns the batches of a job.
func NewSynthetic(prog *program.Job, uses Uses, seed uint64) *Synthetic {
	s := &Synthetic{seed: seed, uses: uses, class: maxClasses, shapes: map[string]tensor.Dims{}}
	for _, in := range prog.Inputs {
		s.order = append(s.order, in.Name)
		s.shapes[in.Name] = tensor.D(in.Size...)
		if uses.Targets[in.Name] {
			s.class = min(s.class, uses.Bounds[in.Name])
		}
	}
	for _, r := range builtinText {
		s.text = append(s.text, int64(r))
	}
	return s
}

// classOf is the class of a sample of a batch.
func (s *Synthetic) classOf(batch int, sample int64) int64 {
	return kernel.NewStream(s.seed ^ uint64(batch)<<20 ^ uint64(sample)).Below(s.class)
}

// follows reports whether a target is the text shifted by one word.
func (s *Synthetic) follows(name string) bool {
	if !s.uses.Targets[name] {
		return false
	}
	for _, other := range s.order {
		if !s.uses.Targets[other] && s.uses.Bounds[other] > 0 && s.shapes[other] == s.shapes[name] && s.shapes[name].Len() > 1 {
			return true
		}
	}
	return false
}

// Values implements Source.
func (s *Synthetic) Values(n int, in program.Input) ([]byte, error) {
	size := tensor.D(in.Size...)
	total := size.Numel()
	out := make([]float64, total)
	each := total
	if len(in.Size) > 0 && in.Size[0] > 0 {
		each = total / in.Size[0]
	}
	bound := s.uses.Bounds[in.Name]
	language := s.follows(in.Name) || slices.ContainsFunc(s.order, func(o string) bool { return s.follows(o) && s.shapes[o] == s.shapes[in.Name] })
	for at := int64(0); at < total; at += each {
		sample := at / each
		class := s.classOf(n, sample)
		row := out[at:min(at+each, total)]
		noise := kernel.NewStream(s.seed<<8 ^ uint64(n)<<32 ^ uint64(sample)<<4 ^ uint64(len(in.Name)))
		switch {
		case in.DType.IsFloating():
			pattern := kernel.NewStream(uint64(class) + 1)
			for i := range row {
				row[i] = pattern.Normal() + 0.5*noise.Normal()
			}
		case bound < 1:
			if in.DType != tensor.Bool && in.DType != tensor.Int64 && in.DType != tensor.Uint8 && in.DType != tensor.Int32 {
				return nil, fmt.Errorf("no values are made for an input of type %v; give data.source", in.DType)
			}
			for i := range row { // a mask of ones, or numbers that nothing bounds
				row[i] = 1
			}
		case language:
			start := kernel.NewStream(s.seed ^ uint64(n)<<16 ^ uint64(sample)).Below(int64(len(s.text)))
			if s.uses.Targets[in.Name] {
				start++
			}
			for i := range row {
				row[i] = float64(s.text[(start+int64(i))%int64(len(s.text))] % bound)
			}
		case s.uses.Targets[in.Name]:
			for i := range row {
				row[i] = float64(class % bound)
			}
		default: // words: one in two is of the class
			for i := range row {
				row[i] = float64(noise.Below(bound))
				if noise.Below(2) == 0 {
					row[i] = float64((class*31 + noise.Below(3)) % bound)
				}
			}
		}
	}
	return tensor.Encode(in.DType, out), nil
}

// builtinText is a text whose words, its bytes, are easy to predict.
const builtinText = "the caching allocator rounds every request up to a multiple of 512 bytes and looks for the smallest free block that is large enough. " +
	"if there is none it asks the driver for a segment. a segment is never given back while a block of it is in use. " +
	"the peak of a training step is reached where the forward pass ends and the backward pass begins: there every saved tensor is alive. "
