package report

import (
	"fmt"
	"strings"
)

// changes prints what makes the job fit, or fit with more room.
func (t *text) changes() {
	a := t.r.Advice
	if a == nil || a.Fix == nil {
		return
	}
	title := "What makes it fit, the simplest first"
	switch {
	case t.r.Verdict.Result == Fits:
		title = "What leaves more room, the simplest first"
	case t.r.Verdict.Result == Tight:
		title = "What makes it fit without giving cached memory back"
	case len(a.Changes) == 0 || !a.Changes[0].Fits:
		title = "Nothing was found that makes it fit"
	}
	t.printf("%s (%s: %d simulated%s)\n", t.bold(title), Plural(int64(a.Fix.Combinations), "combination"), a.Fix.Simulated, a.Fix.excluded())
	for i := range a.Changes {
		c := &a.Changes[i]
		lacks := ""
		if !c.Fits {
			lacks = fmt.Sprintf(", the least that was found: %v too little", -c.HeadroomBytes)
		}
		t.printf("  %d. %s\n", i+1, c.texts())
		if h := t.r.Host; h != nil && c.HostBytes > h.TotalBytes {
			lacks += fmt.Sprintf(", %v of host memory", c.HostBytes)
		}
		t.printf("     %s  %s reserved%s; %s; change of numbers: %s; work: %s\n", t.word(c.Result), t.bold(c.PeakReservedBytes.String()), lacks, c.time(), c.Numerics, c.Effort)
		if i < t.o.Shown || i == 0 {
			t.block("spec", c.SpecLines)
			t.block("code", strings.Split(c.Code, "\n"))
		}
	}
	on := " (--advise searches on)"
	if t.o.Shown > 1 { // it did
		on = ""
	}
	if sure := a.sure(); a.Fix.Cut && sure == len(a.Changes) && sure > 0 {
		t.printf("  the search ended at its limit: there may be more%s\n", on)
	} else if a.Fix.Cut {
		behind := ""
		if sure > 0 {
			behind = fmt.Sprintf("behind number %d ", sure)
		}
		t.printf("  the search ended at its limit: %ssomething simpler may have been missed%s\n", behind, on)
	}
	t.printf("\n")
}

// sure counts the changes before which nothing comes, as far as that is known.
func (a *Advice) sure() int {
	n := 0
	for n < len(a.Changes) && a.Changes[n].Cheapest {
		n++
	}
	return n
}

// block prints lines of a spec or of code, with a word in front.
func (t *text) block(word string, lines []string) {
	for i, l := range lines {
		if i > 0 {
			word = ""
		}
		t.printf("       %-5s %s\n", word, l)
	}
}

func (f *Fix) excluded() string {
	if f.Excluded == 0 {
		return ""
	}
	return fmt.Sprintf(", %d ruled out by these", f.Excluded)
}

// texts say what the parts do.
func (c *Change) texts() string {
	var out []string
	for _, p := range c.Parts {
		out = append(out, p.Text)
	}
	return strings.Join(out, "; ")
}

// time says what becomes of a step's time.
func (c *Change) time() string {
	switch x := 100 * (c.Slowdown - 1); {
	case x >= 100:
		return fmt.Sprintf("a step takes about %.1f times as long", c.Slowdown)
	case x >= 0.5:
		return fmt.Sprintf("a step takes about %.0f %% longer", x)
	case x <= -0.5:
		return fmt.Sprintf("a step takes about %.0f %% less time", -x)
	}
	return "a step takes about as long as before"
}
