package cpu

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// Kernels compute in float32 and float64. Calls of other floating types, or of
// several types, run on copies of their operands in the wider one, as PyTorch
// computes in its accumulation type; the results are rounded.

// widened is the type in which a call can run that does not run as it is: float64
// if one of its operands is, else float32.
func (r *row) widened(c *kernel.Call) (*kernel.Call, runner, error) {
	wide, floating := tensor.Float32, false
	for i := range c.T {
		if t := &c.T[i]; !t.Absent() && r.converts(c, i) {
			floating = floating || t.DType.IsFloating()
			if t.DType == tensor.Float64 {
				wide = tensor.Float64
			}
		}
	}
	run := r.run[wide]
	if !floating || run == nil {
		return nil, nil, &kernel.UnsupportedError{Kernel: c.Kernel, DType: c.T[r.decides].DType, Device: "the CPU"}
	}
	w := *c
	w.T = append([]kernel.Tensor(nil), c.T...)
	for i := range w.T {
		if r.converts(c, i) {
			w.T[i].DType = wide
		}
	}
	if err := r.checkTypes(&w); err != nil {
		return nil, nil, fmt.Errorf("kernel %s: %w", c.Kernel.Name, err)
	}
	return &w, run, nil
}

// converts reports whether an operand may be replaced by a copy of another type.
func (r *row) converts(c *kernel.Call, i int) bool {
	_, of := fixed[strings.TrimSuffix(c.Kernel.Tensors[i], "?")]
	if of && (!strings.HasPrefix(c.Kernel.Name, "attention") || c.T[i].DType == tensor.Bool) {
		return false
	}
	return !c.Kernel.Writes(i) || c.T[i].DType.IsFloating()
}

// runWidened runs w in the place of c, whose operands lie in memory.
func runWidened(c, w *kernel.Call, run runner, memory [][]byte) error {
	own := append([][]byte(nil), memory...)
	for i := range c.T {
		if c.T[i].DType != w.T[i].DType && len(memory[i]) > 0 {
			own[i] = make([]byte, int64(len(memory[i]))/c.T[i].DType.Size()*w.T[i].DType.Size())
			if err := converted(w.T[i], own[i], c.T[i], memory[i]); err != nil {
				return err
			}
		}
	}
	if err := run(newLaunch(w, own)); err != nil {
		return err
	}
	for i := range c.T {
		if c.Kernel.Writes(i) && c.T[i].DType != w.T[i].DType && len(memory[i]) > 0 {
			if err := converted(c.T[i], memory[i], w.T[i], own[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// converted copies the elements of one operand to another of the same layout, each
// once.
func converted(to kernel.Tensor, data []byte, from kernel.Tensor, source []byte) error {
	for d := range to.Stride.Len() {
		if to.Stride.At(d) == 0 {
			to.Size = to.Size.Set(d, 1)
		}
	}
	from.Size = to.Size
	return copied(newLaunch(&kernel.Call{Kernel: kernel.Copy, T: []kernel.Tensor{to, from}}, [][]byte{data, source}))
}
