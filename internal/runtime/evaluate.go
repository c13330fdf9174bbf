package runtime

import (
	"math"
	"time"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Evaluation is what an evaluation between two steps gave.
type Evaluation struct {
	Step    int // after which it was; 0: before the first
	Batches int
	Samples int64 // of the batches that were loaded for it; 0 where they are the steps' own
	// Loss is the mean over the batches, each counted by its samples; NaN if the
	// statements name none.
	Loss float64
	// Scored is how many predictions of classes a loss compared, Right how many of them
	// have their class as the most likely one, and Surprise the mean of -log p of the
	// classes. Scored is 0 where no loss does that, or several of a batch.
	Scored, Right int64
	Surprise      float64
	Took          time.Duration
	Tokens        bool // the classes are the words that an input is made of: a language model
}

// evaluation is one under way.
type evaluation struct {
	Evaluation
	began  time.Time
	loads  map[string]int // how often each input was loaded
	weight float64        // of the losses so far
	sum    float64        // of losses, by their weights
	nll    float64        // of -log p

	// Of the batch under way.
	loss    float64
	has     bool // loss
	samples int64
	losses  int // that compare classes
	scored  int64
	right   int64
	batch   float64 // of -log p
	several bool    // of some batch
}

// BeginEval implements engine.Backend.
func (x *Executor) BeginEval() {
	x.eval = &evaluation{loads: map[string]int{}}
	if x.clock != nil {
		x.eval.began = x.clock()
	}
}

// EvalLoss implements engine.Backend.
func (x *Executor) EvalLoss(t *op.Tensor) (err error) {
	if x.skip || t.Numel() != 1 {
		return nil
	}
	x.eval.loss, err = x.scalar(t)
	x.eval.has = true
	return err
}

// EvalBatch implements engine.Backend.
func (x *Executor) EvalBatch() {
	e := x.eval
	if x.skip || !e.has && e.losses == 0 && e.samples == 0 {
		return
	}
	e.Batches++
	if !e.has {
		e.loss = math.NaN()
	}
	w := float64(max(e.samples, 1))
	e.sum, e.weight, e.Samples = e.sum+w*e.loss, e.weight+w, e.Samples+e.samples
	e.several = e.several || e.losses > 1
	e.Scored, e.Right, e.nll = e.Scored+e.scored, e.Right+e.right, e.nll+e.batch
	e.has, e.samples, e.losses, e.scored, e.right, e.batch = false, 0, 0, 0, 0, 0
}

// EndEval implements engine.Backend.
func (x *Executor) EndEval(n int) (loss float64, err error) {
	e := x.eval
	x.eval = nil
	if x.clock != nil {
		e.Took = x.clock().Sub(e.began)
		x.paused += e.Took
	}
	if x.skip || e.Batches == 0 {
		return math.NaN(), nil
	}
	e.Step, e.Loss, e.Surprise = n, e.sum/e.weight, e.nll/float64(e.Scored)
	if e.several || e.Scored == 0 {
		e.Scored, e.Right, e.Surprise = 0, 0, 0
	}
	if x.onEval == nil {
		return e.Loss, nil
	}
	return e.Loss, x.onEval(e.Evaluation)
}

// ignoring are arguments of a loss that leaves targets of one class out.
type ignoring interface{ Ignored() int64 }

// scoredRows is of how many numbers the rows are whose classes are compared at once.
const scoredRows = 1 << 20

// score compares the classes that a loss of an evaluation is about with those that are the
// most likely ones. Input 0 of such a row holds logarithms of their probabilities.
func (x *Executor) score(c *op.Call) error {
	e := x.eval
	args, is := c.Args.(ignoring)
	if x.onEval == nil || x.skip || !is || len(c.Op.Indices) == 0 || !c.Op.Indices[0].Classes {
		return nil
	}
	p, target := c.In[0], c.In[c.Op.Indices[0].In]
	along := min(1, p.Rank()-1)
	if p.Rank() == 0 || p.Rank() > 1 && p.Size.Remove(along) != target.Size {
		return nil
	}
	if e.losses++; e.losses > 1 {
		return nil
	}
	classes := p.Dim(along)
	e.Tokens = e.Tokens || x.words[classes]
	a := &onArrays{x: x}
	each := max(classes, 1)
	if along == 0 { // a single sample
		e.compare(a.Get(p), a.Get(target), classes, 1, args.Ignored())
		return a.err
	}
	inner := p.Numel() / max(p.Dim(0)*each, 1)
	rows := max(scoredRows/max(each*inner, 1), 1)
	for at := int64(0); at < p.Dim(0) && a.err == nil; at += rows {
		n := min(rows, p.Dim(0)-at)
		e.compare(a.read(p, part(p, at, n)), a.read(target, part(target, at, n)), classes, inner, args.Ignored())
	}
	return a.err
}

// part are n rows of a tensor's first dimension, from one on.
func part(t *op.Tensor, from, n int64) tensor.Layout {
	l := t.Layout
	size := l.Size.Slice()
	size[0] = n
	l.Offset += from * l.Stride.Slice()[0]
	l.Size = tensor.D(size...)
	return l
}

// compare counts of log-probabilities [n, classes, inner] the targets [n, inner].
func (e *evaluation) compare(p, target []float64, classes, inner, ignored int64) {
	for i, t := range target {
		if class := int64(t); class != ignored && class >= 0 && class < classes {
			first := int64(i)/inner*classes*inner + int64(i)%inner
			best := int64(0)
			for k := range classes {
				if p[first+k*inner] > p[first+best*inner] {
					best = k
				}
			}
			e.scored++
			if best == class {
				e.right++
			}
			e.batch -= p[first+class*inner]
		}
	}
}
