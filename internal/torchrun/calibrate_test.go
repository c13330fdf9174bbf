package torchrun

import (
	"strings"
	"testing"
)

func TestCalibrate(t *testing.T) {
	m, err := python(t, `[ -s "$1" ] && echo '{"torch": "2.6.0", "cuda": "12.4", "name": "Some GPU", "memory": 4096, "bare": 100, "loaded": 150}'`).Calibrate(t.Context())
	if err != nil || m.Name != "Some GPU" || m.CUDA != "12.4" || m.Bare != 100 || m.Loaded != 150 {
		t.Errorf("%+v, %v", m, err)
	}
	for says, want := range map[string]string{
		`{"torch": "2.6.0", "error": "a second process could not use the GPU beside the first"}`: "could not use the GPU beside the first (PyTorch 2.6.0)",
		`{"memory": 4096, "bare": 100, "loaded": 90}`:                                            "try again when it is idle",
		`{"memory": 4096, "bare": 0, "loaded": 90}`:                                              "try again when it is idle",
		`{"memory": 4096, "bare": 100, "loaded": 5000}`:                                          "try again when it is idle",
		`hello`: "is this a Python? It did not say what a context takes",
	} {
		if m, err := python(t, `echo '`+says+`'`).Calibrate(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", says, m, err, want)
		}
	}
}
