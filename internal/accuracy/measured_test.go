package accuracy

import (
	"fmt"
	"os"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/spec"
)

func TestMeasured(t *testing.T) {
	runs, err := LoadXMem(testdata + "/measured")
	if err != nil {
		t.Fatal(err)
	}
	z := os.Getenv("ZERO")
	for _, r := range runs {
		if z != "" {
			r.ZeroGrad = z
		}
		s, err := spec.Parse("x.yaml", []byte(r.Spec()), spec.Options{})
		if err != nil {
			t.Fatalf("%v\n%s", err, r.Spec())
		}
		j, err := estimate.NewJob(s, func(string) ([]byte, error) { return []byte(xMemModels[r.Model].hf), nil })
		if err != nil {
			t.Fatalf("%v\n%s", err, r.Spec())
		}
		o, err := estimate.Run(j)
		if err != nil {
			t.Fatal(err)
		}
		rep := o.Report()
		xm := r.Others["xMem"]
		fmt.Printf("%-22s %-8s %4d %s %5v meas %6.0f free %6.0f err %+6.2f%%  xmem %+6.2f%%  fits %v cap %6.0f\n", r.Model, r.Optim, r.Batch, r.GPU[15:], r.OOM, float64(r.Peak)/(1<<20),
			float64(rep.Peak.ReservedBytes)/(1<<20), Percent(rep.Peak.ReservedBytes, r.Peak), Percent(xm, r.Peak), rep.Verdict.Result, float64(o.OnGPU.PeakReserved.Reserved)/(1<<20))
	}
}
