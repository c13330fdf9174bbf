package plan_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/memplan/memplan/plan"
)

const spec = `memplan: 1
name: tiny-cnn
model:
  inputs:
    image: {shape: [3, 64, 64]}
    label: {shape: [], dtype: int64}
  layers:
    - Conv2d: {out_channels: 32, kernel_size: 3, padding: 1}
    - ReLU
    - AdaptiveAvgPool2d: 1
    - Flatten
    - Linear: 10
  loss: {CrossEntropyLoss: {target: label}}
train: {batch_size: 256, optimizer: AdamW}
device: {gpu: rtx-3060}
`

// A job is estimated: does it fit, and what are the three numbers?
func Example() {
	job := &plan.Job{Name: "tiny.yaml", Text: []byte(spec)}
	e, err := job.Estimate(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	r := e.Report
	fmt.Println(r.Verdict.Result, "on", r.Device.DisplayName)
	fmt.Println("allocated", r.Peak.AllocatedBytes)
	fmt.Println("reserved ", r.Peak.ReservedBytes)
	fmt.Println("device   ", r.Peak.DeviceBytes)
	fmt.Println("at the peak", r.AtPeak.ActivationsBytes, "of activations,", r.AtPeak.ParametersBytes, "of parameters")
	// Output:
	// FITS on NVIDIA GeForce RTX 3060 12GB
	// allocated 412.28 MiB
	// reserved  526.00 MiB
	// device    646.00 MiB
	// at the peak 128.01 MiB of activations, 4.79 KiB of parameters
}

// A scheduler asks which GPUs a job fits on.
func ExampleJob_With() {
	text, err := plan.Preset("gpt2")
	if err != nil {
		log.Fatal(err)
	}
	job := &plan.Job{Name: "gpt2", Text: text, Set: []string{"train.batch_size=16"}}
	for _, gpu := range []string{"t4", "rtx-4090", "a100-80gb"} {
		e, err := job.With("device.gpu=" + gpu).Estimate(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(gpu, e.Report.Verdict.Result, e.Report.Verdict.HeadroomBytes)
	}
	// Output:
	// t4 OOM -10.83 GiB
	// rtx-4090 OOM -2.20 GiB
	// a100-80gb FITS 53.50 GiB
}

// The largest batch that fits, and one that is round and leaves 5 % free.
func ExampleEstimate_Largest() {
	job := &plan.Job{Name: "tiny.yaml", Text: []byte(spec)}
	e, err := job.Estimate(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	found, err := e.Largest(context.Background(), plan.Search{Headroom: 0.05})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found.Key, found.Largest, found.Recommended)
	// Output:
	// train.batch_size 5756 5464
}

// What makes a job fit that does not: the simplest change, as lines of the spec.
// The fourth step of this job is like the third and was not played, but the allocator reserves more in it.
func ExampleEstimate_TraceToPeak() {
	text, err := plan.Preset("dcgan")
	if err != nil {
		log.Fatal(err)
	}
	e, err := (&plan.Job{Name: "dcgan", Text: text}).Estimate(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range []*plan.Trace{e.Trace(), e.TraceToPeak()} {
		p, err := plan.Replay(context.Background(), t, plan.ReplayOptions{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("up to step", t.Events[len(t.Events)-1].Step, "reserved at the peak:", p.Simulation.Reserved.Peak)
	}
	fmt.Println("as the report says:", e.Report.Peak.ReservedBytes)
	// Output:
	// up to step 3 reserved at the peak: 354.00 MiB
	// up to step 4 reserved at the peak: 370.00 MiB
	// as the report says: 370.00 MiB
}

func ExampleEstimate_Advise() {
	job := &plan.Job{Name: "tiny.yaml", Text: []byte(spec), Set: []string{"train.batch_size=24000"}}
	e, err := job.Estimate(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.Report.Verdict.Result)
	advice, err := e.Advise(context.Background(), plan.AdviceOptions{})
	if err != nil {
		log.Fatal(err)
	}
	c := advice.Changes[0]
	fmt.Println(c.Change, c.Result, c.PeakReservedBytes)
	fmt.Println(c.Set)

	again, err := job.With(c.Set...).Estimate(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(again.Report.Verdict.Result, again.Report.Peak.ReservedBytes == c.PeakReservedBytes)
	// Output:
	// OOM
	// accumulate:8 FITS 6.00 GiB
	// [train.batch_size=3000 train.grad_accumulation=8]
	// FITS true
}

// What is wrong with a spec is told together, with places.
func ExampleMistakes() {
	wrong := strings.NewReplacer("Conv2d", "Conv2D", "optimizer", "optimiser").Replace(spec)
	job := &plan.Job{Name: "tiny.yaml", Text: []byte(wrong), Set: []string{"train.batch_size=many"}}
	for _, m := range plan.Mistakes(job.Check(context.Background())) {
		if m.Setting != "" {
			fmt.Printf("%s: %s\n", m.Setting, m.Message)
			continue
		}
		fmt.Printf("%s:%d:%d: %s\n", m.File, m.Line, m.Column, m.Message)
	}
	// Output:
	// --set train.batch_size=many: batch_size must be an integer, not "many"
	// tiny.yaml:8:7: unknown layer or operator "Conv2D"; did you mean "Conv2d"?
	// tiny.yaml:14:26: unknown key "optimiser"; did you mean "optimizer"?
}

// Specs of strangers get bounds, and may read files of one folder only.
func ExampleJob_limits() {
	dir, err := os.OpenRoot(".")
	if err != nil {
		log.Fatal(err)
	}
	defer dir.Close()
	job := &plan.Job{
		Name:     "stranger.yaml",
		Text:     []byte(spec),
		Set:      []string{"train.steps=100000"},
		ReadFile: func(name string) ([]byte, error) { return dir.ReadFile(filepath.Clean(name)) },
		Limits:   plan.Limits{Memory: 1 << 30, Time: time.Minute, Work: 1_000},
	}
	_, err = job.Estimate(context.Background())
	var met *plan.LimitError
	fmt.Println(errors.As(err, &met))
	// Output:
	// true
}

// The allocator alone: 3 blocks on a device of 4 MiB.
func ExampleReplay() {
	t, err := plan.ReadTrace(strings.NewReader(`{"capacity_bytes": 4194304,
	 "events": [["a", 1, 524288], ["a", 2, 1048576], ["f", 1], ["a", 3, 8388608]]}`))
	if err != nil {
		log.Fatal(err)
	}
	p, err := plan.Replay(context.Background(), t, plan.ReplayOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("reserved at the peak:", p.Simulation.Reserved.Peak)
	for _, f := range p.Failures {
		fmt.Println("event", f.Event, "fails")
	}
	// Output:
	// reserved at the peak: 2.00 MiB
	// event 3 fails
}

// The report as JSON is that of memplan estimate --format json.
func ExampleReport() {
	job := &plan.Job{Name: "tiny.yaml", Text: []byte(spec)}
	e, err := job.Estimate(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	text, err := json.Marshal(e.Report)
	if err != nil {
		log.Fatal(err)
	}
	var v struct {
		Version int `json:"memplan_report"`
		Verdict struct{ Result string }
	}
	if err := json.Unmarshal(text, &v); err != nil {
		log.Fatal(err)
	}
	fmt.Println(v.Version, v.Verdict.Result)
	// Output:
	// 1 FITS
}
