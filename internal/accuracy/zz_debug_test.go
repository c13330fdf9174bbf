package accuracy

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/spec"
)

func TestZZ(t *testing.T) {
	if os.Getenv("ROW") == "" {
		t.Skip()
	}
	n, _ := strconv.Atoi(os.Getenv("ROW"))
	runs, _ := LoadXMem(testdata + "/measured")
	r := runs[n]
	if b, err := strconv.Atoi(os.Getenv("B")); err == nil {
		r.Batch = int64(b)
	}
	if r.Family == "transformer" {
		r.ZeroGrad = "0"
	}
	s, _ := spec.Parse("x.yaml", []byte(r.Spec()), spec.Options{})
	j, err := estimate.NewJob(s, func(string) ([]byte, error) { return []byte(xMemModels[r.Model].hf), nil })
	if err != nil {
		t.Fatal(err)
	}
	o, err := estimate.Run(j)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(r.Model, r.Optim, r.Batch, r.Peak>>20)
	tr := o.Played.Trace
	res, _ := allocsim.Replay(tr.Events, allocsim.ReplayOptions{Series: true})
	var last int64
	min, _ := strconv.Atoi(os.Getenv("MIN"))
	for i, v := range res.ReservedSeries {
		e := &tr.Events[i]
		if d := (int64(v) - last) >> 20; d >= int64(min) || d < 0 {
			fmt.Printf("step %d %-9s %-28s %-40s req %7.1f MiB  +%d -> %d  alloc %d\n", e.Step, e.Phase, tr.Ops[e.Op], tr.Layers[e.Layer], float64(e.Bytes)/(1<<20), d, v>>20, res.AllocatedSeries[i]>>20)
		}
		last = int64(v)
	}
}
