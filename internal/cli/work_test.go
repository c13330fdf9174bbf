package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
)

// TestWork bounds what an estimate of a job as people have them allocates, which grows with
// the files that are read and the events that are played, but not with the load of the
// machine. The bounds are a twentieth above what it takes.
func TestWork(t *testing.T) {
	needs.Raced(t, "the race detector allocates, too")
	const (
		mostBytes   = 63 * tensor.MiB
		mostObjects = 420_000
	)
	file := filepath.Join(t.TempDir(), "qlora.yml")
	text := `base_model: meta-llama/Meta-Llama-3-8B
load_in_4bit: true
adapter: qlora
sequence_len: 2048
sample_packing: true
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 2
optimizer: paged_adamw_32bit
learning_rate: 0.0002
bf16: true
gradient_checkpointing: true
flash_attention: true
datasets:
  - {path: tatsu-lab/alpaca, type: alpaca}
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	var out bytes.Buffer
	runtime.ReadMemStats(&before)
	code := Main([]string{"estimate", "--quick", file}, &Streams{Out: &out, Err: &out, Env: os.LookupEnv})
	runtime.ReadMemStats(&after)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, &out)
	}
	if n := tensor.Bytes(after.TotalAlloc - before.TotalAlloc); n > mostBytes {
		t.Errorf("%v allocated, at most %v allowed", n, mostBytes)
	} else {
		t.Logf("%v allocated", n)
	}
	if n := after.Mallocs - before.Mallocs; n > mostObjects {
		t.Errorf("%d objects, at most %d allowed", n, mostObjects)
	} else {
		t.Logf("%d objects", n)
	}
}
