package runtime

import (
	"context"
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/tensor"
)

// TestPlaces checks the order in which elements of any strides are visited.
func TestPlaces(t *testing.T) {
	l := tensor.Contiguous(tensor.D(2, 3))
	for _, c := range []struct {
		layout tensor.Layout
		want   []int
	}{
		{l, []int{0, 1, 2, 3, 4, 5}},
		{l.Transpose(0, 1), []int{0, 3, 1, 4, 2, 5}},
		{l.Narrow(1, 0, 2, 2), []int{0, 2, 3, 5}},
		{tensor.Layout{Size: tensor.D(2, 2), Stride: tensor.D(0, 1)}, []int{0, 1, 0, 1}},
		{tensor.Contiguous(tensor.D()), []int{0}},
		{tensor.Contiguous(tensor.D(0, 3)), nil},
	} {
		var got []int
		places(c.layout, func(_, at int) { got = append(got, at) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, not %v", c.layout, got, c.want)
		}
	}
}

// TestOnHost: what is computed in host memory has a name.
func TestOnHost(t *testing.T) {
	j := job(t, "mlp", "device.gpu=a100-40gb", "params.sizes=[8,4]", "train.batch_size=2", "prune={amount: 0.3}")
	device := cpu.New(tensor.GiB)
	r, err := Run(context.Background(), j.Program, j.Machine.Env, Options{Device: device, Config: j.Machine.Conf, Steps: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := device.Close(); err != nil {
		t.Error(err)
	}
	if want := []string{"l1_unstructured"}; !slices.Equal(r.HostOperators, want) {
		t.Errorf("computed in host memory are %q, not %q", r.HostOperators, want)
	}
}
