package webpage

import (
	"crypto/sha256"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/snapshot"
)

// TestECharts holds the library against the README of its folder, which says what it is.
func TestECharts(t *testing.T) {
	readme, err := os.ReadFile("echarts/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(echarts))); !strings.Contains(string(readme), "| "+sum+" |") {
		t.Errorf("echarts.min.js has the SHA-256 %s, which its README does not say", sum)
	}
	version := regexp.MustCompile(`version="(6\.\d+\.\d+)"`).FindStringSubmatch(echarts)
	if version == nil || !strings.Contains(string(readme), "| version | "+version[1]+" |") {
		t.Errorf("echarts.min.js is version %q, which its README does not say", version)
	}
	for _, name := range []string{"LICENSE", "NOTICE", "licenses/LICENSE-d3"} {
		if _, err := os.Stat("echarts/" + name); err != nil {
			t.Error(err)
		}
	}
}

// TestEscaped holds that names are text wherever they are on the page.
func TestEscaped(t *testing.T) {
	const hostile = `</script><script>alert(1)</script><img src=http://a.example/x onerror=alert(1)>"'&` + "\x1b\u2028"
	r := &report.Report{Params: map[string]any{hostile: hostile}}
	r.Model.Name, r.Device.DisplayName, r.Peak.Op, r.Verdict.Reason = hostile, hostile, hostile, hostile
	r.Layers = []report.Layer{{Layer: hostile, Kind: hostile}}
	r.Warnings = []string{hostile}
	r.Advice = &report.Advice{Changes: []report.Change{{Change: hostile, Set: []string{hostile}}}}
	stack := &snapshot.Stack{Frames: []snapshot.Frame{{File: "<" + hostile + ">", Name: hostile}, {File: "<step 1>", Name: hostile}}}
	d := &snapshot.Device{
		Segments: []snapshot.Segment{{Address: 1 << 21, Size: 1 << 21, Small: true, Blocks: []snapshot.Block{{Address: 1 << 21, Size: 1 << 21, Requested: 5, State: snapshot.Allocated}}}},
		Events: []snapshot.Event{
			{Action: snapshot.SegmentAlloc, Address: 1 << 21, Size: 1 << 21, Stack: stack},
			{Action: snapshot.Alloc, Address: 1 << 21, Size: 5, Stack: stack, Category: hostile},
		},
	}
	var b strings.Builder
	if err := Write(&b, OfReport(r, []Memory{{Name: hostile, Device: d, OOM: -1}})); err != nil {
		t.Fatal(err)
	}
	var picture strings.Builder
	if err := WriteSVG(&picture, OfReport(r, []Memory{{Name: hostile, Device: d, OOM: -1}})); err != nil {
		t.Fatal(err)
	}
	if found := elements(t, picture.String()); found["script"]+found["img"] > 0 || strings.Contains(picture.String(), "\x1b") {
		t.Errorf("the picture has %v", found)
	}
	page := strings.Replace(b.String(), echarts, "", 1)
	if n := strings.Count(page, "<script"); n != 4 {
		t.Errorf("the page has %d scripts, want 4", n)
	}
	for _, s := range []string{"<img", "alert(1)</script>", "\x1b"} {
		if strings.Contains(page, s) {
			t.Errorf("the page contains %q", s)
		}
	}
}

// TestColumns holds the columns of a few events.
func TestColumns(t *testing.T) {
	a, b := &snapshot.Stack{Frames: []snapshot.Frame{{File: "<fc>", Name: "addmm"}, {File: "<step 1>", Name: "forward"}}},
		&snapshot.Stack{Frames: []snapshot.Frame{{File: "train.py", Line: 3, Name: "step"}}}
	d := &snapshot.Device{
		Segments: []snapshot.Segment{{Address: 1 << 21, Size: 2 << 20, Small: true, Blocks: []snapshot.Block{{Address: 1 << 21, Size: 1024, Requested: 600, State: snapshot.Allocated}, {Address: 1<<21 + 1024, Size: 2<<20 - 1024}}}},
		Events: []snapshot.Event{
			{Action: snapshot.Alloc, Address: 1<<21 + 1024, Size: 700, Stack: a, Category: "inputs"},
			{Action: snapshot.FreeRequested, Address: 1<<21 + 1024, Size: 700, Stack: b},
			{Action: snapshot.FreeCompleted, Address: 1<<21 + 1024, Size: 700, Stack: b},
			{Action: snapshot.OOM, Address: 3, Size: 512, Stack: b},
		},
	}
	c, err := (&Memory{Device: d, OOM: -1}).columns()
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c.Kinds, c.Held, c.Bytes, c.Block, c.Freed, c.Tried, c.OOM, c.PeakAllocated, c.PeakReserved, c.Categories); got != "afo1 [600 700] [1024 1024] [1] [[512 3]] 2 2048 2097152 [inputs]" {
		t.Errorf("columns are %s", got)
	}
	if w := c.Works[c.Doing[0]]; w.Module != "fc" || w.Operator != "addmm" || w.Step != 1 || w.Phase != "forward" {
		t.Errorf("the first event is of %+v", w)
	}
	if w := c.Works[c.Doing[1]]; w.Module != "train.py:3 step" {
		t.Errorf("the second event is of %+v", w)
	}
}

// TestRanks holds the table of processes that do different things.
func TestRanks(t *testing.T) {
	rank := int64(1)
	p := OfReport(&report.Report{
		Train: report.Train{Rank: &rank},
		Ranks: []report.Rank{{Rank: 0, Parameters: 5000, PeakAllocatedBytes: 1 << 20, PeakReservedBytes: 2 << 20, HeadroomBytes: 3 << 20, Result: report.Fits}, {Rank: 1, Result: report.OOMs}},
	}, nil)
	i := slices.IndexFunc(p.Tables, func(t Table) bool { return t.Title == "Ranks" })
	if i < 0 || len(p.Tables[i].Rows) != 2 {
		t.Fatalf("tables %v", p.Tables)
	}
	if c := p.Tables[i].Rows[0][3]; c.Name != "ranks.0.peak_reserved_bytes" || c.Value != 2<<20 {
		t.Errorf("reserved is %+v", c)
	}
	if last := p.Tables[i].Rows[1][5]; last.Text != report.OOMs {
		t.Errorf("the result is %+v", last)
	}
}
