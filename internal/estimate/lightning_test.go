package estimate

import "testing"

// The loss of a preset takes params of its own in the loop of lightning.Trainer, too; the
// gradients of the step before are there in the forward pass.
func TestLightning(t *testing.T) {
	const model = "model: {preset: llama, with: {layers: 2, seq: 64}}\ntrain: {batch_size: 4, optimizer: SGD}\n"
	peak := func(text string) int64 {
		j, err := (&Recipe{Path: "test.yaml", Text: []byte("memplan: 1\n" + text)}).Job()
		if err != nil {
			t.Fatal(err)
		}
		o, err := Run(j)
		if err != nil {
			t.Fatal(err)
		}
		return int64(o.Report().Peak.AllocatedBytes)
	}
	if usual, loop := peak(model), peak(model+"trainer: {lightning: {}}\n"); loop <= usual {
		t.Errorf("peak %d bytes, that of a usual loop %d", loop, usual)
	}
}
