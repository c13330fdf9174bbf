package gate

import (
	"context"
	"testing"
)

// TestHostOfAllProcesses holds that the processes of one machine share its memory.
func TestHostOfAllProcesses(t *testing.T) {
	const text = "memplan: 1\nmodel:\n  inputs: {x: [300], y: {shape: [], dtype: int64}}\n  layers: [{Linear: 700}, ReLU, {Linear: 900}]\n  loss: {cross_entropy: {target: y}}\n" +
		"train: {batch_size: 400, optimizer: AdamW}\nparallel: {ddp: 8}\ndata: {loader: {num_workers: 16}}\ndevice: {gpu: t4, host_ram: 40GiB, shm: 64MiB}\n"
	r, err := checkTexts(context.Background(), t, "", map[string]string{"a.yaml": text}, "a.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, u := range r.Specs {
		for _, f := range u.Findings {
			found[f.Name] = true
		}
	}
	if !found["host-ram"] || !found["shared-memory"] {
		t.Errorf("8 processes of 7.48 GiB and 15.80 MiB of /dev/shm pass with 40 GiB and 64 MiB: %v", found)
	}
}
