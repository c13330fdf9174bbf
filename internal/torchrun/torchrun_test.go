package torchrun

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// python writes a shell script that stands for Python.
func python(t *testing.T, script string) Python {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python.sh")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return Python{"sh", path}
}

const recording = `{"events": {"setup": [[1, 512]], "step1": [[2, 1024], -2]}, "steps": [{"peak_allocated_bytes": 1536, "peak_reserved_bytes": 2097152, "ms": 1.5}], "device_bytes": 7, "context_bytes": 5}`

func TestRecord(t *testing.T) {
	for _, c := range []struct {
		name        string
		ranks, gpus int64
		script      string // what Python does with its arguments
		want        int    // recordings
		err         string
	}{
		{"one GPU", 0, 1, `[ "$#" = 3 ] && [ -s "$2" ] && echo '` + recording + `' > "$3"`, 1, ""},
		{"one process for several", 4, 2, `[ "$4" = 4 ] && [ -s "$(dirname "$1")/standin.py" ] && echo '` + recording + `' > "$3"`, 1, ""},
		{"a process for each GPU", 3, 3, `[ "$1 $2 $3 $4" = "-m torch.distributed.run --standalone --nproc-per-node=3" ] && for r in 0 1 2; do echo '` + recording + `' > "$7.$r"; done`, 3, ""},
		{"a process that died", 2, 2, `echo '` + strings.Replace(recording, "{", `{"error": "out of memory", `, 1) + `' > "$7.1"; exit 1`, 1, ""},
		{"torchrun that failed", 2, 2, `echo "Traceback: no rendezvous" >&2; exit 1`, 0, "no rendezvous"},
		{"a process that wrote nothing", 2, 2, `echo '` + recording + `' > "$7.0"`, 0, "out.json.1"},
		{"a failure", 0, 1, `echo out; echo "Traceback: it broke" >&2; exit 5`, 0, "exit status 5\nTraceback: it broke"},
		{"a long complaint", 0, 1, `i=0; while [ $i -lt 300 ]; do echo "line $i of a traceback" >&2; i=$((i+1)); done; exit 1`, 0, "line 299 of a traceback"},
		{"no PyTorch", 0, 1, `echo "ModuleNotFoundError: No module named 'torch'" >&2; exit 1`, 0, "this Python has no PyTorch; name one that has"},
		{"what is no JSON", 0, 1, `echo nonsense > "$3"`, 0, "invalid character"},
	} {
		t.Run(c.name, func(t *testing.T) {
			recs, err := python(t, c.script).Record(t.Context(), Job{Script: []byte("print()"), Ranks: c.ranks}, c.gpus)
			if c.err == "" {
				if err != nil || len(recs) != c.want {
					t.Fatalf("%d recordings, %v; want %d", len(recs), err, c.want)
				}
				for _, r := range recs {
					if r.Device != 7 || r.Context != 5 || r.Steps[0].PeakAllocated != 1536 || len(r.Events["step1"]) != 2 {
						t.Errorf("read as %+v", r)
					}
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), c.err) || len(err.Error()) > maxOutput+500 {
				t.Errorf("error %v, want one with %q", err, c.err)
			}
		})
	}
}

// The allocator's options are the job's, not those of whoever runs memplan.
func TestRecordAllocConf(t *testing.T) {
	t.Setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:32")
	t.Setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64")
	for _, conf := range []string{"", "expandable_segments:True"} {
		script := `[ "$PYTORCH_CUDA_ALLOC_CONF/$PYTORCH_ALLOC_CONF" = "` + conf + `/" ] && echo '` + recording + `' > "$3"`
		if _, err := python(t, script).Record(t.Context(), Job{AllocConf: conf}, 1); err != nil {
			t.Errorf("%q: %v", conf, err)
		}
	}
}

// Nothing is left behind, whatever Python did.
func TestRecordCleansUp(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, script := range []string{`echo '` + recording + `' > "$3"`, `exit 1`} {
		_, _ = python(t, script).Record(t.Context(), Job{}, 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := python(t, `exec sleep 100`).Record(ctx, Job{}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "memplan-run-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestFind(t *testing.T) {
	d, err := python(t, `[ "$1" = -c ] && echo a warning && echo '{"torch": "2.6.0", "name": "Some GPU", "arch": 90, "sms": 132, "memory": 1024, "count": 2}'`).Find(t.Context())
	if err != nil || d.Name != "Some GPU" || d.Arch != 90 || d.Count != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	_, err = python(t, `echo '{"torch": "2.6.0", "error": "this PyTorch finds no CUDA GPU"}'`).Find(t.Context())
	if err == nil || !strings.Contains(err.Error(), "this PyTorch finds no CUDA GPU (PyTorch 2.6.0)") {
		t.Errorf("without a GPU: %v", err)
	}
	_, err = python(t, `echo "$2"`).Find(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), "is this a Python? It did not say what GPU there is") {
		t.Errorf("what is no Python: %v", err)
	}
}
