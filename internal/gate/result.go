package gate

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/memplan/memplan/internal/pool"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/tensor"
)

// ResultVersion is the version of the JSON of Result.
const ResultVersion = 1

// Result is what a check found. Its JSON is a contract: a change of a name or
// of a meaning raises ResultVersion, a new name does not.
type Result struct {
	Version  int       `json:"memplan_check"`
	Specs    []Checked `json:"specs"`     // by path, then in the order of devices
	Findings []Finding `json:"findings"`  // about no spec, such as figures of one that is gone
	Config   string    `json:"config"`    // the configuration; "": none
	Against  string    `json:"against"`   // what growth was measured against: a file or a commit; "": nothing
	RulesOff []RuleOff `json:"rules_off"` // rules that weigh less than by default
	LeftOut  []LeftOut `json:"left_out"`  // what the figures do not hold, of operators; no findings
	FailOn   string    `json:"fail_on"`   // the lightest finding that makes the gate fail, or never
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
	Notes    int       `json:"notes"`
	Unread   int       `json:"unread"` // specs that could not be read, or checked to the end
	// Unfinished is how many of them were ended by a limit of memory or time, or by a
	// mistake of memplan's own.
	Unfinished int  `json:"unfinished"`
	Failed     bool `json:"failed"`

	failsOn func(Severity) bool
}

// RuleOff is a rule that the configuration or a flag has turned off or made
// lighter.
type RuleOff struct {
	Rule     string   `json:"rule"`
	Name     string   `json:"name"`
	Severity Severity `json:"severity"`
	Specs    int      `json:"specs"` // for so many
}

// rulesOff lists them, by rule and severity.
func (o *Options) rulesOff() []RuleOff {
	out := []RuleOff{}
	for _, r := range Rules() {
		specs := map[Severity]int{}
		for _, path := range o.Specs {
			if s := o.Config.policy(path).severity(r); s.weight() < r.Severity.weight() {
				specs[s]++
			}
		}
		for _, s := range severities {
			if specs[s] > 0 {
				out = append(out, RuleOff{r.ID, r.Name, s, specs[s]})
			}
		}
	}
	return out
}

// LeftOut is what an operator's figures do not hold, whatever a spec says.
type LeftOut struct {
	What  string `json:"what"`
	Specs int    `json:"specs"` // so many run the operator
}

// leftOut collects what the units left out, the most frequent first.
func leftOut(units []unit) []LeftOut {
	out := []LeftOut{}
	in := map[string]string{} // the spec that had it last
	for i := range units {
		for _, what := range units[i].leftOut {
			last, known := in[what]
			in[what] = units[i].Spec
			switch at := slices.IndexFunc(out, func(l LeftOut) bool { return l.What == what }); {
			case !known:
				out = append(out, LeftOut{what, 1})
			case last != units[i].Spec: // not on another GPU
				out[at].Specs++
			}
		}
	}
	slices.SortStableFunc(out, func(a, b LeftOut) int { return b.Specs - a.Specs })
	return out
}

// leftOutLines tell it, each between two texts.
func (r *Result) leftOutLines(before, after string) string {
	var b strings.Builder
	for _, l := range r.LeftOut {
		fmt.Fprintf(&b, "%snot in the figures of %s: %s%s", before, report.Plural(int64(l.Specs), "spec"), l.What, after)
	}
	return b.String()
}

// leniency says what the summary must not leave out: rules that are off or
// lighter than by default, and that no finding fails the gate; "" if there is
// nothing.
func (r *Result) leniency() string {
	var parts []string
	total := map[string]bool{}
	for i := range r.Specs {
		total[r.Specs[i].Spec] = true
	}
	for _, o := range r.RulesOff {
		part := fmt.Sprintf("%s %s is %s", o.Rule, o.Name, o.weight())
		if o.Specs < len(total) {
			part += " for " + report.Plural(int64(o.Specs), "spec")
		}
		parts = append(parts, part)
	}
	if r.FailOn == "never" {
		parts = append(parts, "no finding fails the gate (fail_on)")
	}
	return strings.Join(parts, ", ")
}

// weight is how the summary calls the severity of a rule.
func (o *RuleOff) weight() string {
	if o.Severity == Off {
		return "off"
	}
	return "a " + string(o.Severity) + " only"
}

// Checked is one spec on one GPU; a spec that cannot be read comes once.
type Checked struct {
	Spec          string       `json:"spec"`
	Model         string       `json:"model"`
	GPU           string       `json:"gpu"`
	Asked         string       `json:"device"` // the GPU that the configuration or a flag asks for; "": the spec's own
	Batch         int64        `json:"batch_size"`
	Fits          *bool        `json:"fits"`   // null: not known, as the spec cannot be read or memplan broke down over it
	Result        string       `json:"result"` // FITS, TIGHT or OOM; "" if not known
	Peak          *Figures     `json:"peak"`
	UsableBytes   tensor.Bytes `json:"usable_bytes"`
	HeadroomBytes tensor.Bytes `json:"headroom_bytes"`
	Before        *Figures     `json:"baseline"` // null: nothing to compare with
	Findings      []Finding    `json:"findings"`

	Panic *pool.Panic `json:"-"` // where memplan broke down; nil if it did not
}

// Figures are the peaks that are compared.
type Figures struct {
	AllocatedBytes tensor.Bytes `json:"allocated_bytes"`
	ReservedBytes  tensor.Bytes `json:"reserved_bytes"`
	// ExpectedBytes is reserved memory with the workspaces that cuDNN's
	// convolutions are expected to take.
	ExpectedBytes tensor.Bytes `json:"reserved_expected_bytes"`
}

// Finding is one thing that a rule found. Lines and columns count from 1, columns
// in characters.
type Finding struct {
	Rule     string   `json:"rule"`
	Name     string   `json:"name"`
	Severity Severity `json:"severity"`
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Column   int      `json:"column"`
	Message  string   `json:"message"`
	Code     string   `json:"code,omitempty"` // of a note of the report
}

// All lists the findings of a result, of specs first, each with the spec that it
// is about (nil: none). What is the same on several GPUs comes once.
func (r *Result) All() []Located {
	var out []Located
	seen := map[Finding]bool{}
	for i := range r.Specs {
		for _, f := range r.Specs[i].Findings {
			if !seen[f] {
				out = append(out, Located{f, &r.Specs[i]})
			}
			seen[f] = true
		}
	}
	for _, f := range r.Findings {
		out = append(out, Located{f, nil})
	}
	return out
}

// Located is a finding with the spec that it is about.
type Located struct {
	Finding
	Of *Checked
}

// maxTold bounds the findings of a result: of specs beyond, the first is told.
const maxTold = 10_000

// sum counts findings and decides. Findings of a spec are sorted: the heaviest
// first, then by place.
func (r *Result) sum(c *Config) {
	r.failsOn, r.FailOn = c.FailsOn, c.FailOn.V
	told := 0
	for i := range r.Specs {
		f := r.Specs[i].Findings
		sort.SliceStable(f, func(i, j int) bool {
			a, b := &f[i], &f[j]
			switch {
			case a.Severity != b.Severity:
				return a.Severity.weight() > b.Severity.weight()
			case a.Line != b.Line:
				return a.Line < b.Line
			}
			return a.Rule < b.Rule
		})
		if r.Specs[i].Fits == nil {
			r.Unread++
		}
		if told += len(f); told > maxTold && len(f) > 1 { // the heaviest stays
			told -= len(f) - 1
			r.Specs[i].Findings = f[:1:1]
		}
	}
	for _, f := range r.All() {
		switch f.Severity {
		case Error:
			r.Errors++
		case Warning:
			r.Warnings++
		case Note:
			r.Notes++
		}
		r.Failed = r.Failed || c.FailsOn(f.Severity)
	}
	r.Failed = r.Failed || r.Unread > 0
}
