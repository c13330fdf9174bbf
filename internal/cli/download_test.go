package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestDownloadFlag: --download asks the hub of HF_ENDPOINT; without it nothing is asked.
func TestDownloadFlag(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/someone/thing/resolve/main/config.json" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(`{"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 1000}`))
	}))
	defer server.Close()
	run := func(args ...string) (string, int) {
		var out strings.Builder
		code := Main(args, &Streams{In: strings.NewReader(""), Out: &out, Err: &out, Env: func(name string) (string, bool) {
			if name == "HF_ENDPOINT" {
				return server.URL, true
			}
			return "", false
		}})
		return out.String(), code
	}
	out, code := run("estimate", "someone/thing", "--quick")
	if code != exitUsage || asked != 0 || !strings.Contains(out, "be downloaded by --download") {
		t.Errorf("exit code %d, %d requests\n%s", code, asked, out)
	}
	out, code = run("estimate", "someone/thing", "--download")
	if code != exitOK || asked != 1 || !strings.Contains(out, "  config     someone/thing, "+server.URL+"/someone/thing/resolve/main/config.json\n") {
		t.Errorf("exit code %d, %d requests\n%s", code, asked, out)
	}
	out, code = run("estimate", "someone/none", "--download")
	if code == exitOK || asked != 2 || !strings.Contains(out, "404 Not Found") {
		t.Errorf("exit code %d, %d requests\n%s", code, asked, out)
	}
	if out, code = run("estimate", "HuggingFaceTB/SmolLM2-135M", "--download", "--quick"); code != exitOK || asked != 2 {
		t.Errorf("exit code %d, %d requests\n%s", code, asked, out)
	}
}
