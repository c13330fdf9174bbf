package hub

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/files"
)

// TestTable checks that each name means one configuration, and each row says where it is from.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range Models() {
		if m.Type == "" || m.Parameters <= 0 || !strings.HasPrefix(m.Source.URL, "https://") || len(m.Names) == 0 {
			t.Errorf("%v: type %q, %d parameters, source %v", m.Names, m.Type, m.Parameters, m.Source)
		}
		for _, n := range m.Names {
			if seen[strings.ToLower(n)] || strings.ContainsAny(n, "{}, ") || Lookup(n) != m || !IsName(n) {
				t.Errorf("%s is there twice, or no name", n)
			}
			seen[strings.ToLower(n)] = true
		}
	}
	if len(Models()) < 150 {
		t.Errorf("%d configurations", len(Models()))
	}
}

func TestExpand(t *testing.T) {
	got := expand("o/{A,B-}1{,-x}")
	if want := []string{"o/A1", "o/A1-x", "o/B-1", "o/B-1-x"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestIsName(t *testing.T) {
	for s, want := range map[string]bool{
		"meta-llama/Llama-3.1-8B": true, "gpt2": true, "BERT-Base-Uncased": true, "my/model": true,
		"model": false, "a/b/c": false, "a/config.json": false, "../b": false, "a/..": false, "a/b..c": false, "/a": false, "": false, "-a/b": false,
	} {
		if IsName(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}

// write makes a file and the folders that it lies in.
func write(t *testing.T, text string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestCopies checks the configurations of quantized copies.
func TestCopies(t *testing.T) {
	for name, want := range map[string]string{
		"unsloth/llama-3-8b-bnb-4bit":  `{"quantization_config":{"quant_method":"bitsandbytes","load_in_4bit":true,`,
		"Qwen/Qwen2.5-7B-Instruct-awq": `{"quantization_config":{"quant_method":"awq"},"model_type":"qwen2",`,
		"Qwen/Qwen3-8B-FP8":            `{"quantization_config":{"quant_method":"fp8"},"model_type":"qwen3",`,
		"deepseek-ai/DeepSeek-V3-FP8":  "", // is of 8 bits itself
		"me/none-AWQ":                  "",
		"-AWQ":                         "",
	} {
		m := Lookup(name)
		if want == "" {
			if m != nil {
				t.Errorf("%s: %s", name, m.Config)
			}
			continue
		}
		if m == nil || !strings.HasPrefix(string(m.Config), want) || !json.Valid(m.Config) {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// TestOrder checks what goes before what: a given file, the cache, the table, the hub.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	cached := write(t, `{"n": 1}`, dir, "models--openai-community--gpt2", "snapshots", "abc", "config.json")
	write(t, `{"n": 2}`, dir, "models--openai-community--gpt2", "snapshots", "def", "config.json")
	write(t, "abc\n", dir, "models--openai-community--gpt2", "refs", "main")
	sole := write(t, `{"n": 3}`, dir, "models--me--mine", "snapshots", "123", "config.json")
	write(t, `{"n": 4}`, dir, "models--me--two", "snapshots", "1", "config.json")
	write(t, `{"n": 4}`, dir, "models--me--two", "snapshots", "2", "config.json")
	write(t, "../../../..", dir, "models--me--out", "refs", "main")
	given := write(t, `{"n": 5}`, dir, "given.json")
	for _, c := range []struct {
		h          *Hub
		name, from string
		text       string
	}{
		{&Hub{Cache: dir}, "openai-community/gpt2", cached, `{"n": 1}`},
		{&Hub{Cache: dir}, "me/mine", sole, `{"n": 3}`},
		{&Hub{Cache: dir}, "me/two", "", ""},
		{&Hub{Cache: dir}, "me/out", "", ""},
		{&Hub{Cache: dir}, "gpt2", "table (", `{"model_type":"gpt2"}`},
		{&Hub{Cache: dir, Given: given}, "openai-community/gpt2", given, `{"n": 5}`},
		{nil, "Openai-Community/GPT2", "table (https://", `{"model_type":"gpt2"}`},
		{nil, "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "table (as Qwen/Qwen2.5-Math-7B: https://", `{"model_type":"qwen2","vocab_size":152064,"hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,"rms_norm_eps":1e-06,"dtype":"bfloat16"}`},
		{nil, "Qwen/Qwen3-Next-80B-A3B-Instruct-AWQ", "table (as Qwen/Qwen3-Next-80B-A3B-Instruct: https://", `{"quantization_config":{"quant_method":"awq"},"model_type":"qwen3_next","dtype":"bfloat16"}`},
		{nil, "me/mine", "", ""},
	} {
		got, err := c.h.Find(c.name)
		if has := c.h.Has(c.name); has != (c.from != "") {
			t.Errorf("%s: Has is %v", c.name, has)
		}
		if c.from == "" {
			if unknown := (*UnknownError)(nil); !errors.As(err, &unknown) || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v, error %v", c.name, got, err)
			}
			continue
		}
		if err != nil || !strings.HasPrefix(got.From, c.from) || string(got.Text) != c.text {
			t.Errorf("%s: %+v, error %v", c.name, got, err)
		}
	}
	h := &Hub{Given: given}
	if _, err := h.Find("a/b"); err != nil {
		t.Error(err)
	}
	if _, err := h.Find("a/c"); err == nil || !strings.Contains(err.Error(), "two are named: a/b and a/c") {
		t.Errorf("error %v", err)
	}
}

// TestPassword: what an address has of a password is sent, and not printed.
func TestPassword(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" || strings.Contains(r.URL.Path, "none") {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(`{"model_type": "gpt2"}`))
	}))
	defer server.Close()
	client, err := NewClient(t.Context(), environment("HF_ENDPOINT", strings.Replace(server.URL, "//", "//me:secret@", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewClient(t.Context(), environment("HF_ENDPOINT", "http://me:secret@hub.example.org")); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
	h := &Hub{Download: client}
	if c, err := h.Find("me/mine"); err != nil || strings.Contains(c.From, "secret") {
		t.Errorf("%+v, error %v", c, err)
	}
	if _, err := h.Find("me/none"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
}

func TestUnknown(t *testing.T) {
	for name, want := range map[string]string{
		"meta-llama/Meta-Llama-3-8": "did you mean meta-llama/Meta-Llama-3-8B? (memplan list models); its config.json may be given by --model-config FILE",
		"tiiuae/falcon-180B":        "no configuration of such a model, whose model_type is falcon (memplan",
	} {
		if _, err := (*Hub)(nil).Find(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestCacheFolder(t *testing.T) {
	home := t.TempDir() // is absolute on all systems
	at := func(tail ...string) string { return filepath.Join(append([]string{home}, tail...)...) }
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"HOME": home}, at(".cache", "huggingface", "hub")},
		{map[string]string{"HOME": home, "XDG_CACHE_HOME": at("x")}, at("x", "huggingface", "hub")},
		{map[string]string{"HOME": home, "HF_HOME": at("h")}, at("h", "hub")},
		{map[string]string{"HF_HUB_CACHE": at("c"), "HF_HOME": at("h")}, at("c")},
		{map[string]string{"HF_HOME": "relative"}, ""},
		{nil, ""},
	} {
		got := CacheFolder(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.env, got, c.want)
		}
	}
}

// TestDownload checks what is sent to a hub, and what its answers come to.
func TestDownload(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/me/mine/resolve/main/config.json":
			w.Header().Set("X-Repo-Commit", "abc")
			_, _ = w.Write([]byte(`{"model_type": "gpt2"}`))
		case "/me/gated/resolve/main/config.json":
			w.WriteHeader(http.StatusUnauthorized)
		case "/me/away/resolve/main/config.json":
			http.Redirect(w, r, "http://example.org/config.json", http.StatusFound)
		case "/me/large/resolve/main/config.json":
			for range files.MaxText/1000 + 2 {
				_, _ = w.Write(make([]byte, 1000))
			}
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	client, err := NewClient(t.Context(), func(name string) (string, bool) {
		v, ok := map[string]string{"HF_ENDPOINT": server.URL + "/", "HF_TOKEN": "secret"}[name]
		return v, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	h := &Hub{Download: client}
	for range 2 { // is asked once
		c, err := h.Find("me/mine")
		if err != nil || string(c.Text) != `{"model_type": "gpt2"}` || c.From != server.URL+"/me/mine/resolve/abc/config.json" {
			t.Fatalf("%+v, error %v", c, err)
		}
	}
	if _, err := h.Find("gpt2"); err != nil { // of the table
		t.Error(err)
	}
	if want := []string{"/me/mine/resolve/main/config.json Bearer secret"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q", asked)
	}
	for name, want := range map[string]string{
		"me/gated": "401 Unauthorized: there is no such model, or it asks for a token", "me/none": "404 Not Found",
		"me/away": "it redirects to http://example.org/config.json", "me/large": "larger than the limit",
	} {
		if c, err := h.Find(name); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, error %v", name, c, err)
		}
	}
}

// environment has one variable.
func environment(name, value string) func(string) (string, bool) {
	return func(asked string) (string, bool) {
		if asked != name {
			return "", false
		}
		return value, true
	}
}

func TestNewClient(t *testing.T) {
	for endpoint, ok := range map[string]bool{
		"": true, "https://hub.example.org": true, "http://127.0.0.1:8": true, "http://localhost": true, "http://[::1]:8": true,
		"http://hub.example.org": false, "ftp://localhost": false, "file:///etc": false, "hub": false, "http://localhost.example.org": false,
	} {
		_, err := NewClient(t.Context(), environment("HF_ENDPOINT", endpoint))
		if (err == nil) != ok {
			t.Errorf("%q: error %v", endpoint, err)
		}
	}
	for value, off := range map[string]bool{"1": true, "TRUE": true, "yes": true, "On": true, "0": false, "false": false, "": false} {
		if _, err := NewClient(t.Context(), environment("HF_HUB_OFFLINE", value)); (err != nil) != off {
			t.Errorf("HF_HUB_OFFLINE=%s: error %v", value, err)
		}
	}
	if c, err := NewClient(t.Context(), environment("HF_TOKEN", "secret\n")); err != nil || c.Token != "secret" {
		t.Errorf("%+v, error %v", c, err)
	}
}
