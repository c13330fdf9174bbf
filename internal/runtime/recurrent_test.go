package runtime

import (
	"context"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// recurrent is a model of a recurrent layer behind something that needs its input's
// gradient; names are those of its results, and uses those of its states that count.
func recurrent(t *testing.T, layer, names, uses string, more ...string) *estimate.Job {
	t.Helper()
	steps := "5, "
	if strings.Contains(layer, "Cell") {
		steps = ""
	}
	weighed := ""
	for _, state := range strings.Fields(uses) {
		weighed += fmt.Sprintf("  - {sum: %[1]s, name: sum_%[1]s}\n  - out = out * sum_%[1]s + sum_%[1]s\n", state)
	}
	text := fmt.Sprintf(`memplan: 1
model:
  inputs: {x: {shape: [%[1]s6]}, y: {shape: [%[1]s4]}}
  layers:
  - {Linear: 7}
  - {%[2]s, name: %[3]s}
%[4]s  - {Linear: 4, inputs: out}
  loss: {MSELoss: {target: y}}
train: {batch_size: 3, optimizer: SGD}
eval: {every: 1, batches: 2}
device: {gpu: a100-40gb}
%[5]s
`, steps, layer, names, weighed, strings.Join(more, "\n"))
	j, err := (&estimate.Recipe{Path: "recurrent", Text: []byte(text)}).Job()
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// evaluations are the losses of those of two steps, for which nothing is kept.
func evaluations(t *testing.T, d Device, j *estimate.Job) (losses []float64) {
	t.Helper()
	_, err := Run(context.Background(), j.Program, j.Machine.Env, Options{
		Device: d, Config: j.Machine.Conf, Steps: 2, Seed: 1, Poison: true,
		OnEval: func(e Evaluation) error {
			losses = append(losses, e.Loss)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(losses) != 2 {
		t.Fatalf("%d evaluations", len(losses))
	}
	return losses
}

// TestRecurrent holds recurrent layers and cells as kernels compute them against their
// mathematics: the loss and all gradients, and losses of evaluations, in float64. What they keep
// is once moved to host memory and back.
func TestRecurrent(t *testing.T) {
	cells := []*op.Op{aten.FusedLSTM, aten.FusedGRU}
	for _, c := range []struct{ layer, names, uses string }{
		{"LSTM: {hidden_size: 5}", "[out, h]", ""},
		{"LSTM: {hidden_size: 5}", "[out, [h, c]]", "h c"},
		{"LSTM: {hidden_size: 5, num_layers: 3, bidirectional: true, batch_first: true, dropout: 0.4}", "[out, [h, c]]", "h c"},
		{"LSTM: {hidden_size: 5, proj_size: 3, num_layers: 2, bidirectional: true, dropout: 0.4}", "[out, [h, c]]", "h c"},
		{"LSTM: {hidden_size: 5, proj_size: 3, bias: false, batch_first: true}", "[out, h]", ""},
		{"GRU: {hidden_size: 5, num_layers: 2}", "[out, h]", "h"},
		{"GRU: {hidden_size: 5, num_layers: 2, bidirectional: true, batch_first: true, dropout: 0.4}", "[out, h]", "h"},
		{"RNN: {hidden_size: 5, num_layers: 2, bidirectional: true, dropout: 0.4}", "[out, h]", "h"},
		{"RNN: {hidden_size: 5, nonlinearity: relu, bias: false, batch_first: true}", "[out, h]", ""},
		{"LSTMCell: {hidden_size: 5}", "[out, c]", "c"},
		{"LSTMCell: {hidden_size: 5, bias: false}", "[out, c]", ""},
		{"GRUCell: {hidden_size: 5}", "out", ""},
		{"GRUCell: {hidden_size: 5, bias: false}", "out", ""},
	} {
		t.Run(c.layer+c.uses, func(t *testing.T) {
			j := recurrent(t, c.layer, c.names, c.uses)
			program.AsFloat64(j.Program)
			got := playOn(t, away{cpu.New(tensor.GiB)}, j.Program, j.Machine.Env, "", 0, 0)
			if len(got.hostOps) > 0 {
				t.Errorf("computed in host memory are %q", slices.Sorted(maps.Keys(got.hostOps)))
			}
			evaluated := evaluations(t, away{cpu.New(tensor.GiB)}, j)
			for _, r := range cells {
				kernels := r.Eval
				r.Eval = kernels.ByFormula
				defer func() { r.Eval = kernels }()
			}
			for i, want := range evaluations(t, cpu.New(tensor.GiB), j) {
				if got := evaluated[i]; math.IsNaN(want) || math.Abs(got-want) > 1e-12*math.Abs(want) {
					t.Errorf("loss %v of evaluation %d, not %v", got, i, want)
				}
			}
			want := play(t, j.Program, j.Machine.Env, "", 0, 0)
			if len(want.hostOps) == 0 {
				t.Fatal("nothing was computed on arrays")
			}
			if math.IsNaN(want.loss) || math.Abs(got.loss-want.loss) > 1e-12*math.Abs(want.loss) {
				t.Errorf("loss %v, not %v", got.loss, want.loss)
			}
			if len(want.order) < 4 {
				t.Errorf("gradients of %v alone", want.order)
			}
			for _, name := range want.order {
				for i, w := range want.gradients[name] {
					if g := got.gradients[name][i]; math.Abs(g-w) > 1e-11*max(1, math.Abs(w)) {
						t.Fatalf("%s[%d]: gradient %v, not %v", name, i, g, w)
					}
				}
			}
			moved := recurrent(t, c.layer, c.names, c.uses, "offload: {activations: true}")
			program.AsFloat64(moved.Program)
			for of, d := range map[*tangent]Device{got: away{cpu.New(tensor.GiB)}, want: cpu.New(tensor.GiB)} {
				if m := playOn(t, d, moved.Program, moved.Machine.Env, "", 0, 0); m.loss != of.loss || !reflect.DeepEqual(m.gradients, of.gradients) {
					t.Errorf("on arrays %v: what is moved gives other gradients", d.OnHost())
				}
			}
		})
	}
}
