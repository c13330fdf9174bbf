package cli

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
)

var figureRE = regexp.MustCompile(`data-name="([^"]*)" data-value="(-?\d+)">([^<]*)</tspan>`)

// TestSVG holds that the figures of pictures are those of the reports, and that pictures stand alone.
func TestSVG(t *testing.T) {
	jobs := htmlJobs
	if testing.Short() {
		jobs = jobs[:3]
	}
	for _, job := range jobs {
		t.Run(job, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "job.svg")
			text, figures := picturesOf(t, job, "--svg", file)
			if n := len(text); n > 100<<10 {
				t.Errorf("the picture has %d bytes, and should have at most 100 KiB", n)
			}
			if err := xml.Unmarshal([]byte(text), new(struct{})); err != nil {
				t.Error(err)
			}
			if found := loads.FindString(strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "")); found != "" {
				t.Errorf("the picture loads something: %q", found)
			}
			want := decoded(t, figures).(map[string]any)
			shown := figureRE.ReplaceAllString(text, `<data data-name="$1" value="$2">$3</data>`)
			if n := compareFigures(t, shown, want); n != 5 {
				t.Errorf("the picture shows %d figures, want 5", n)
			}
			for name, v := range want["at_peak"].(map[string]any) {
				n, err := tensor.ParseBytes(v.(json.Number).String())
				if err != nil {
					t.Fatal(err)
				}
				if label := strings.TrimSuffix(strings.ReplaceAll(name, "_", " "), " bytes"); n > 0 && !strings.Contains(text, ">"+label+"<") {
					t.Errorf("the picture has no %s", label)
				}
				if n > 0 && !strings.Contains(text, ">"+n.String()+"<") {
					t.Errorf("the picture has no %v for %s", n, name)
				}
			}
			if oom := want["verdict"].(map[string]any)["result"] == "OOM"; strings.Contains(text, ">OUT OF MEMORY<") != oom {
				t.Errorf("the picture shows that the job runs out of memory: %v", !oom)
			}
		})
	}
}

// TestSVGFlag holds what --svg does with diff, with snapshots and on standard output.
func TestSVGFlag(t *testing.T) {
	dir := t.TempDir()
	out, errs, code := memplan("", "diff", "preset:mlp", "preset:lenet", "--quick", "--svg", "-")
	if code != 0 || strings.Count(out, "<svg") != 3 || !strings.HasPrefix(out, "<svg") || !strings.HasSuffix(out, "</svg>\n") {
		t.Errorf("diff --svg - prints no picture of both alone: %.200s %s", out, errs)
	}
	report := filepath.Join(dir, "a.json")
	figures, _, _ := memplan("", "estimate", "preset:mlp", "--quick", "--format", "json")
	if err := os.WriteFile(report, []byte(figures), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"diff", report, report, "--svg", filepath.Join(dir, "a.svg")}, "--svg: there are no events to be drawn"},
		{[]string{"estimate", "preset:mlp", "--quick", "--svg", "-", "--html", "-"}, "cannot both be standard output"},
		{[]string{"explain", "gelu", "--svg", "-"}, "--svg shows a snapshot"},
	} {
		if _, errs, code := memplan("", c.args...); code != 2 || !strings.Contains(errs, c.want) {
			t.Errorf("memplan %s exits with %d: %s", strings.Join(c.args, " "), code, errs)
		}
	}
}
