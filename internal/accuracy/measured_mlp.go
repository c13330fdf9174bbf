package accuracy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// MLPRun is one run of testdata/measured/gpumemnet-mlp.csv.gz.
type MLPRun struct {
	Name   string
	Input  string // features of a sample
	Batch  string
	Layers []mlpLayer
	Used   tensor.Bytes // of the GPU, context included
}

// mlpLayer is a layer and the features that it returns.
type mlpLayer struct{ kind, features string }

// mlpUsed is what nvidia-smi shows for a model of hardly any parameters.
const mlpUsed = 1443 * tensor.MiB

// minMLP is the least that a model takes on top, for its error to be counted:
// below, the segments of the allocator are most of it.
const minMLP = 100 * tensor.MiB

var (
	mlpInput = regexp.MustCompile(`input:(\d+)_`)
	mlpEntry = regexp.MustCompile(`\('(\w+)', (\d+), \d+\)`)
)

// LoadMLPs reads the runs.
func LoadMLPs(dir string) ([]*MLPRun, error) {
	rows, err := readCSV(dir, "gpumemnet-mlp.csv.gz")
	if err != nil {
		return nil, err
	}
	var out []*MLPRun
	for _, r := range rows {
		in := mlpInput.FindStringSubmatch(r["Filename"])
		used, err := strconv.ParseInt(r["Max GPU Memory (MiB)"], 10, 64)
		if in == nil || err != nil {
			return nil, fmt.Errorf("gpumemnet-mlp.csv.gz: row of %q", r["Filename"])
		}
		run := &MLPRun{Name: strings.TrimSuffix(r["Filename"], ".out"), Input: in[1], Batch: r["Batch Size"], Used: tensor.Bytes(used) * tensor.MiB}
		for _, e := range mlpEntry.FindAllStringSubmatch(r["Activations-Params"], -1) {
			run.Layers = append(run.Layers, mlpLayer{e[1], e[2]})
		}
		out = append(out, run)
	}
	return out, nil
}

// Spec writes the run as a spec: the loop of GPUMemNet's mlp_next.py.
func (r *MLPRun) Spec() string {
	var b strings.Builder
	last := r.Layers[len(r.Layers)-1]
	target, loss := "{shape: [], dtype: int64}", "cross_entropy: [outputs, y]"
	if last.features == "1" {
		target, loss = "{shape: [1]}", "binary_cross_entropy_with_logits: [outputs, y]"
	}
	fmt.Fprintf(&b, "memplan: 1\nmodel:\n  inputs:\n    x: {shape: [%s]}\n    y: %s\n  layers:\n", r.Input, target)
	for _, l := range r.Layers {
		switch l.kind {
		case "linear":
			fmt.Fprintf(&b, "    - Linear: %s\n", l.features)
		case "batch_normalization":
			b.WriteString("    - BatchNorm1d\n")
		case "dropout":
			b.WriteString("    - Dropout\n")
		case "Softmax":
			b.WriteString("    - Softmax: 1\n")
		default:
			fmt.Fprintf(&b, "    - %s\n", l.kind)
		}
	}
	fmt.Fprintf(&b, "step:\n  - batch\n  - zero_grad\n  - {forward: {model: model}, name: outputs}\n  - {%s, name: loss}\n", loss)
	b.WriteString("  - {backward: loss}\n  - optimizer_step\n  - {del: x}\n  - {del: y}\n")
	fmt.Fprintf(&b, "train: {batch_size: %s, optimizer: Adam, loop: flat}\ndevice: {gpu: a100-40gb}\n", r.Batch)
	return b.String()
}

// mlpFloor is what a model of 29 parameters reserves, which nvidia-smi shows too.
func mlpFloor() (tensor.Bytes, error) {
	tiny := &MLPRun{Input: "8", Batch: "32", Layers: []mlpLayer{{"linear", "2"}, {"ReLU", "2"}, {"linear", "3"}, {"Softmax", "3"}}}
	o, err := outcome(tiny.Spec(), nil)
	if err != nil {
		return 0, err
	}
	return o.Free.PeakReserved.Reserved, nil
}

// Compare holds what the prediction has on top of a tiny model's against what
// was measured on top of it.
func (r *MLPRun) Compare(floor tensor.Bytes) *Measured {
	m := &Measured{Name: r.Name, Suite: suiteMLPs, Family: suiteMLPs, Peak: r.Used - mlpUsed}
	if m.Peak <= minMLP {
		m.Skipped = fmt.Sprintf("no more than %v on top of a tiny model's", minMLP)
		return m
	}
	o, err := outcome(r.Spec(), nil)
	if err != nil {
		m.Failed = err.Error()
		return m
	}
	m.predictPeak(o)
	m.Predicted, m.Low, m.High = m.Predicted-floor, m.Low-floor, m.High-floor
	return m
}
