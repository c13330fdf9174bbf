package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/tensor"
)

// htmlJobs are jobs whose pages are compared with their reports.
var htmlJobs = []string{
	"preset:mlp --batch-curve", "preset:gpt --gpu rtx-3060", "preset:gpt2", "preset:resnet", "preset:lenet", "preset:bert", "preset:lstm", "preset:unet",
	"preset:vit", "preset:llama", "preset:dcgan", "preset:swin", "preset:mlp --memory 1GiB --arch sm_80 --sms 10 --batch-size 4194304",
	"preset:gpt2 --alloc-conf expandable_segments:True", "preset:gpt2 --gpu rtx-4090 --batch-size 14",
	"ok/accumulation.yaml", "ok/before_gan.yaml", "ok/checkpoint.yaml", "ok/ema_cpu.yaml", "ok/empty_cache_first.yaml", "ok/eval.yaml",
}

// browserJobs are those that a browser opens, which takes seconds for each: with a curve, with advice, with evaluations, with memory of the host, out of
// memory, with segments that grow and with those that are given back.
var browserJobs = []string{
	"preset:mlp --batch-curve", "preset:gpt --gpu rtx-3060", "preset:lstm", "preset:mlp --memory 1GiB --arch sm_80 --sms 10 --batch-size 4194304",
	"preset:gpt2 --alloc-conf expandable_segments:True", "ok/before_gan.yaml", "ok/ema_cpu.yaml", "ok/empty_cache_first.yaml", "ok/eval.yaml",
}

// loads finds what a page would fetch.
var loads = regexp.MustCompile(`(?i)(src|href|action|data|poster)\s*=\s*["']?(https?:)?//|url\(|@import|\bfetch\(|XMLHttpRequest|importScripts|<link|<iframe|<img`)

// pageOfJob estimates a job with --html; it returns the page and the report.
func pageOfJob(t *testing.T, job, file string) (page, figures string) {
	t.Helper()
	return picturesOf(t, job, "--html", file)
}

// picturesOf estimates a job with a flag that names a file; it returns the file and the report.
func picturesOf(t *testing.T, job, flag, file string) (text, figures string) {
	t.Helper()
	name, flags, _ := strings.Cut(job, " ")
	if !strings.HasPrefix(name, presetPrefix) {
		name = needs.File(t, name)
	}
	args := append([]string{"estimate", name, "--format", "json", flag, file}, strings.Fields(flags)...)
	if !strings.Contains(flags, "--batch-curve") && !strings.Contains(flags, "rtx-3060") {
		args = append(args, "--quick")
	}
	figures, errs, code := memplan("", args...)
	if code != 0 {
		t.Fatal(errs)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(written), figures
}

// between is the text of an element.
func between(t *testing.T, page, begin, end string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, begin)
	text, _, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("the page has no %s", begin)
	}
	return text
}

func decoded(t *testing.T, text string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestHTML holds that the pages of jobs need no network, and that their figures are those of the reports.
func TestHTML(t *testing.T) {
	jobs := htmlJobs
	if testing.Short() {
		jobs = jobs[:3]
	}
	library, err := os.ReadFile("../webpage/echarts/echarts.min.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range jobs {
		t.Run(job, func(t *testing.T) {
			page, figures := pageOfJob(t, job, filepath.Join(t.TempDir(), "page.html"))
			if n := len(page); n > 3<<20 {
				t.Errorf("the page has %d bytes, and should have at most 3 MiB", n)
			}
			own := strings.Replace(page, string(library), "", 1)
			if own == page {
				t.Error("echarts.min.js is not in the page as it is")
			}
			if found := loads.FindString(own); found != "" {
				t.Errorf("the page loads something: %q", found)
			}
			if !strings.Contains(own, `content="default-src 'none';`) {
				t.Error("the page has no Content-Security-Policy that forbids loads")
			}
			want := decoded(t, figures)
			if got := decoded(t, between(t, page, `<script type="application/json" id="figures">`, "</script>")); !reflect.DeepEqual(got, want) {
				t.Error("the JSON of the page is not the report's")
			}
			shownFigures(t, own, want)
			eventFigures(t, page, figures)
		})
	}
}

var shownRE = regexp.MustCompile(`<data data-name="([^"]*)" value="(-?\d+)">([^<]*)</data>`)

// shownFigures compares the numbers on a page with the report.
func shownFigures(t *testing.T, page string, want any) {
	t.Helper()
	if n := compareFigures(t, page, want); n < 15 {
		t.Errorf("the page shows only %d figures", n)
	}
}

// compareFigures returns how many numbers it compared.
func compareFigures(t *testing.T, page string, want any) int {
	t.Helper()
	shown := shownRE.FindAllStringSubmatch(page, -1)
	for _, m := range shown {
		v := want
		for key := range strings.SplitSeq(html.UnescapeString(m[1]), ".") {
			if list, ok := v.([]any); ok {
				i, err := strconv.Atoi(key)
				if err != nil {
					t.Fatal(err)
				}
				v = list[i]
			} else {
				v = v.(map[string]any)[key]
			}
		}
		n, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if v != json.Number(m[2]) {
			t.Errorf("the page has %s for %s, the report %v", m[2], m[1], v)
		}
		if text := tensor.Bytes(n).String(); strings.HasSuffix(m[1], "_bytes") && m[3] != text {
			t.Errorf("the page shows %s for %s, not %s", m[3], m[1], text)
		}
	}
	return len(shown)
}

// eventFigures compares the peaks of the events on a page with the report.
func eventFigures(t *testing.T, page, figures string) {
	t.Helper()
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(between(t, page, `<script type="text/plain" id="events-packed">`, "</script>"))))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var devices []struct {
		Kinds     string       `json:"kinds"`
		OOM       int          `json:"oom"`
		Allocated tensor.Bytes `json:"peak_allocated"`
		Reserved  tensor.Bytes `json:"peak_reserved"`
	}
	var r report.Report
	if err := json.Unmarshal(text, &devices); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(figures), &r); err != nil {
		t.Fatal(err)
	}
	if d := devices[0]; d.Allocated != r.Peak.AllocatedBytes || d.Reserved != r.Peak.ReservedBytes {
		t.Errorf("the events reach %d and %d bytes, the report has %d and %d", d.Allocated, d.Reserved, r.Peak.AllocatedBytes, r.Peak.ReservedBytes)
	}
	if last := devices[len(devices)-1]; r.Verdict.Result == report.OOMs && (len(devices) != 2 || devices[0].OOM < 0 || last.OOM != len(last.Kinds)-1) {
		t.Errorf("the job runs out of memory, and the events do not: %d, %d of %d", devices[0].OOM, last.OOM, len(last.Kinds))
	}
}

// TestHTMLInBrowser opens pages in a browser and reads the figures that it shows.
func TestHTMLInBrowser(t *testing.T) {
	needs.Time(t, needs.Alone)
	browser := needs.Tool(t, "chromium")
	for _, job := range browserJobs {
		t.Run(job, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "page.html")
			_, figures := pageOfJob(t, job, file)
			dom := opened(t, browser, file)
			want := decoded(t, figures)
			shownFigures(t, dom, want)
			peak := want.(map[string]any)["peak"].(map[string]any)
			for id, key := range map[string]string{"events-allocated": "allocated_bytes", "events-reserved": "reserved_bytes", "tree-bytes": "requested_bytes"} {
				if got := between(t, dom, `id="`+id+`" value="`, `"`); json.Number(got) != peak[key] {
					t.Errorf("the browser finds %s in the events for %s, the report %v", got, id, peak[key])
				}
			}
			if strings.Contains(between(t, dom, `<span id="beyond">`, "</span>"), "is in a later step") {
				t.Error("the page says that the peak is in a step that it does not have")
			}
			for _, id := range []string{"over", "segments", "tree"} {
				if chart := between(t, dom, `<div class="chart tall" id="`+id+`-chart"`, "</section>"); !strings.Contains(chart, "<canvas") {
					t.Errorf("no chart is drawn in %s", id)
				}
			}
			for id, key := range map[string]string{"curve": "curve", "advice": "advice"} {
				drawn := strings.Contains(between(t, dom, `id="`+id+`-chart"`, "</section>"), "<canvas")
				has := key == "curve" && want.(map[string]any)["curve"] != nil
				if a, ok := want.(map[string]any)["advice"].(map[string]any); ok && key == "advice" {
					has = len(a["changes"].([]any)) > 0
				}
				if drawn != has {
					t.Errorf("%s is drawn: %v, the report has one: %v", id, drawn, has)
				}
			}
		})
	}
	t.Run("run", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "page.html")
		figures, errs, code := memplan("", "run", "preset:lenet", "--backend", "cpu", "--steps", "3", "--batch-size", "4", "--format", "json", "--html", file)
		if code != 0 {
			t.Fatal(errs)
		}
		dom := opened(t, browser, file)
		if n := compareFigures(t, dom, decoded(t, figures)); n != 4 {
			t.Errorf("the page shows %d figures, want 4", n)
		}
		for _, id := range []string{"over", "losses"} {
			if !strings.Contains(between(t, dom, `id="`+id+`-chart"`, "</section>"), "<canvas") {
				t.Errorf("no chart is drawn in %s", id)
			}
		}
	})
	t.Run("snapshot", func(t *testing.T) {
		dir := t.TempDir()
		file, dump := filepath.Join(dir, "page.html"), filepath.Join(dir, "a.pickle")
		z, err := os.Open(needs.File(t, "snapshots", "frag-exp.pickle.gz"))
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		r, err := gzip.NewReader(z)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dump, text, 0o600); err != nil {
			t.Fatal(err)
		}
		figures, errs, code := memplan("", "explain", dump, "--format", "json", "--html", file)
		if code != 0 {
			t.Fatal(errs)
		}
		dom := opened(t, browser, file)
		for _, m := range shownRE.FindAllStringSubmatch(dom, -1) {
			if key := m[1][strings.LastIndexByte(m[1], '.')+1:]; !strings.Contains(figures, `"`+key+`": `+m[2]) {
				t.Errorf("the page has %s for %s, the explanation has not", m[2], m[1])
			}
		}
		if !strings.Contains(dom, "<canvas") {
			t.Error("no chart is drawn")
		}
	})
}

// opened is the page's DOM after a browser has run its scripts.
func opened(t *testing.T, browser, file string) string {
	t.Helper()
	c := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(), "--virtual-time-budget=30000", "--dump-dom", "file://"+file)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	dom := string(out)
	if !strings.Contains(dom, "data-ready=") {
		t.Fatal("the page's script did not finish")
	}
	if trouble := between(t, dom, `<p id="trouble" role="alert"`, "</p>"); trouble != ` hidden="">` {
		t.Errorf("the page reports%s", trouble)
	}
	return dom
}

// TestHTMLFlag holds what --html does not take.
func TestHTMLFlag(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"estimate", "preset:mlp", "--quick", "--html", dir}, 2, "is a directory"},
		{[]string{"estimate", "preset:mlp", "--quick", "--html", filepath.Join(dir, "no", "page.html")}, 3, "no file can be made in"},
		{[]string{"estimate", "preset:mlp", "--quick", "--html", filepath.Join(dir, "a.html"), "--gpu", "h100,a100-40gb"}, 2, "--html is for one GPU"},
		{[]string{"explain", "gelu", "--html", filepath.Join(dir, "a.html")}, 2, "--html shows a snapshot"},
	} {
		if _, errs, code := memplan("", c.args...); code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("memplan %s exits with %d: %s", strings.Join(c.args, " "), code, errs)
		}
	}
	out, errs, code := memplan("", "estimate", "preset:mlp", "--quick", "--html", "-")
	if code != 0 || !strings.HasPrefix(out, "<!doctype html>") || !strings.HasSuffix(out, "</html>\n") {
		t.Errorf("--html - prints no page alone: %.200s %s", out, errs)
	}
}
