package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	c := &tally{files: 8, fails: map[string][]string{}, why: map[string][]string{}}
	for i, r := range []string{"FITS 1.00 GiB", "OOM 90.00 GiB", "FITS 2.00 GiB", "beside a job", "fails: PEFT refuses it", "refused: a key", "refused: the file trains nothing", "refused: a key"} {
		c.count(fmt.Sprint(i), r)
	}
	const want = `
| files | beside a job | train nothing | planned | of them FITS, TIGHT, OOM on h100-80gb | fail before they train | refused |
|---|---|---|---|---|---|---|
| 8 | 1 | 1 | 3 | 2, 0, 1 | 1 | 2 |

6 files train something. memplan plans 3 (50 %) of them; of 4 (67 %) it plans the job or reports why it fails.

| fails before it trains, as | files |
|---|---|
| PEFT refuses it | 4 |

| refused, or trains nothing, as | files |
|---|---|
| a key | 5 7 |
| the file trains nothing | 6 |

`
	if got := c.table(); got != want {
		t.Errorf("got %s", got)
	}
}

var (
	counts   = regexp.MustCompile(`(?m)^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+), (\d+), (\d+) \| (\d+) \| (\d+) \|$`)
	sentence = regexp.MustCompile(`(?m)^(\d+) files train something\. memplan plans (\d+) \((\d+) %\) of them; of (\d+) \((\d+) %\) it plans the job or reports why it fails\.$`)
)

// TestPage: the figures of docs/jobs.md add up, and the tables name as many files.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Axolotl", "LLaMA-Factory"} {
		_, text, _ := strings.Cut(string(page), "<!-- examples of "+name+" -->")
		text, _, ok := strings.Cut(text, "<!-- /examples of "+name+" -->")
		c, s := counts.FindStringSubmatch(text), sentence.FindStringSubmatch(text)
		if !ok || c == nil || s == nil {
			t.Fatalf("%s: no table, or no sentence", name)
		}
		n := func(list []string, i int) int { x, _ := strconv.Atoi(list[i]); return x }
		files, beside, idle, planned, failing, refused := n(c, 1), n(c, 2), n(c, 3), n(c, 4), n(c, 8), n(c, 9)
		train := files - beside - idle
		if n(c, 5)+n(c, 6)+n(c, 7) != planned || planned+failing+refused != train {
			t.Errorf("%s: %s do not add up", name, c[0])
		}
		if want := fmt.Sprintf("%d files train something. memplan plans %s of them; of %s it plans the job or reports why it fails.", train, share(planned, train), share(planned+failing, train)); s[0] != want {
			t.Errorf("%s: %q, want %q", name, s[0], want)
		}
		listed := map[string]int{}
		title := ""
		for line := range strings.Lines(text) {
			cells := strings.Split(strings.TrimSpace(line), " | ")
			if len(cells) != 2 || strings.HasPrefix(line, "|---") {
				continue
			}
			if strings.HasPrefix(cells[1], "files ") {
				title, _, _ = strings.Cut(strings.TrimPrefix(cells[0], "| "), ",")
				continue
			}
			listed[title] += len(strings.Fields(strings.TrimSuffix(cells[1], "|")))
		}
		if got, want := fmt.Sprint(listed), fmt.Sprint(map[string]int{"fails before it trains": failing, "refused": refused + idle}); got != want && failing > 0 {
			t.Errorf("%s: the tables name %s files, want %s", name, got, want)
		}
	}
}
