package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/engine"
)

// TestScaledStepWithoutGradients: GradScaler refuses to step an optimizer without
// gradients, except a fused one, and to update if no optimizer has any.
func TestScaledStepWithoutGradients(t *testing.T) {
	const spec = `memplan: 1
models:
  net:
    inputs: {x: {shape: [8]}}
    layers:
      - Linear: 4
  head:
    inputs: {h: {shape: [4]}}
    layers:
      - Linear: 2
optimizers:
  one: {optimizer: {SGD: {fused: %t}}, models: [net]}
  two: {optimizer: SGD, models: [head]}
step:
  - batch
  - {zero_grad: one}
  - {zero_grad: two}
  - {forward: {model: net, inputs: x}, name: a, no_grad: true}
  - {forward: {model: head, inputs: a}, name: out}
  - {mean: {}, inputs: out, name: loss}
  - backward: loss
  - {optimizer_step: two}
  - {optimizer_step: one}
train: {batch_size: 4, precision: amp-fp16}
`
	without := strings.NewReplacer("  - {optimizer_step: two}\n", "", "  - {zero_grad: two}\n", "", "  two: {optimizer: SGD, models: [head]}\n", "")
	for _, c := range []struct{ spec, want string }{
		{fmt.Sprintf(spec, true), ""},
		{fmt.Sprintf(spec, false), "no inf checks were recorded for this optimizer"},
		{without.Replace(fmt.Sprintf(spec, true)), "no inf checks were recorded prior to update"},
	} {
		_, err := engine.Play(build(t, c.spec), a100, nil, 2)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error %v, want %q of\n%s", err, c.want, c.spec)
		}
	}
}
