package gate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/nearest"
	"github.com/memplan/memplan/internal/spec"
)

// Severity says how much a finding weighs. A gate fails of the severities that
// fail_on covers, errors alone by default.
type Severity string

// The severities, and Off, which turns a rule off.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
	Off     Severity = "off"
)

// severities are in the order of weight.
var severities = []Severity{Off, Note, Warning, Error}

func (s Severity) weight() int {
	for i, t := range severities {
		if s == t {
			return i
		}
	}
	return 0
}

// atMost is the lighter of two severities.
func (s Severity) atMost(t Severity) Severity {
	if t.weight() < s.weight() {
		return t
	}
	return s
}

// Rule is one thing that the gate looks for. Identifiers do not change.
type Rule struct {
	ID       string
	Name     string
	Severity Severity // by default
	Doc      string   // one line
	Help     string   // what it means, and what to do; one paragraph
	Always   string   // why its severity is no user's to set; "": it is
	// keys of a spec that a finding is about; its place is the first that the
	// spec has. What is about something else says where that is.
	keys []string
	at   func(u *unit) spec.Span
	// worded: findings of the rule in one spec are told apart by their messages,
	// which have no figures that change with every edit.
	worded bool
}

// rules are in no order; they are defined where a variable says which one is meant.
var rules []*Rule

// rule adds a row to the table; an identifier or name that is used already is a
// programming error.
func rule(r Rule) *Rule {
	for _, o := range rules {
		if o.ID == r.ID || o.Name == r.Name {
			panic("gate: rule " + r.ID + " " + r.Name + " is defined twice")
		}
	}
	rules = append(rules, &r)
	return &r
}

// Rules lists the rules by their identifiers.
func Rules() []*Rule {
	return slices.SortedFunc(slices.Values(rules), func(a, b *Rule) int { return strings.Compare(a.ID, b.ID) })
}

// sizeKeys are what one changes first when a job is too large.
var sizeKeys = []string{"train.batch_size", "device.gpu", "device.memory", "model", "models"}

// modelKeys say which model it is.
var modelKeys = []string{"model.preset", "model.hf", "model", "models"}

// The table of rules.
var (
	specError = rule(Rule{
		ID: "MP000", Name: "spec-error", Severity: Error, Doc: "a spec, or a file that it names, cannot be read",
		Help:   "The file is missing or cannot be read, is not valid YAML, or has mistakes. If a spec cannot be read, the exit code is 2, and all other specs are checked. The rule cannot be turned off. An internal error is a bug in memplan: the spec was not checked, and the exit code is 3.",
		Always: "a spec that cannot be read was not checked",
		worded: true,
	})
	predictedOOM = rule(Rule{
		ID: "MP001", Name: "predicted-oom", Severity: Error, Doc: "the job runs out of GPU memory",
		Help: "The simulated allocator cannot serve a request; PyTorch would raise torch.OutOfMemoryError. The message names the step, the phase and the operator. Smaller batches, gradient accumulation, checkpointing, a lower precision or a larger GPU help; memplan estimate shows what the peak is made of.",
		keys: sizeKeys,
	})
	headroom = rule(Rule{
		ID: "MP002", Name: "headroom", Severity: Error, Doc: "less memory is left free than the configuration asks for",
		Help: "Headroom is the usable memory of the GPU minus the peak of reserved memory. The rule compares it with headroom in the configuration (or --headroom): a share of the usable memory such as 5%, or a size such as 2GiB. Without that setting the rule finds nothing.",
		keys: sizeKeys,
	})
	growth = rule(Rule{
		ID: "MP003", Name: "growth", Severity: Error, Doc: "the job needs more memory than before",
		Help: "A peak is greater than in the baseline (--against) or in the spec of an earlier commit (--against-git). The rule compares the peaks of allocated memory, of reserved memory, and of reserved memory with the expected cuDNN workspaces. max_growth (or --max-growth) is the growth that is allowed: a share such as 5%, the default, or a size. If the growth is intended, write a new baseline.",
		keys: sizeKeys,
	})
	hostRAM = rule(Rule{
		ID: "MP004", Name: "host-ram", Severity: Error, Doc: "the job needs more host memory than there is",
		Help: "Processes, the data set, the loader, pinned and offloaded tensors and saving a checkpoint take more than device.host_ram. The sizes of processes are assumed: if only the largest that are possible exceed device.host_ram, the finding is a warning. Without device.host_ram the rule finds nothing.",
		keys: []string{"device.host_ram", "data", "train.batch_size"},
	})
	fragmentation = rule(Rule{
		ID: "MP005", Name: "fragmentation", Severity: Warning, Doc: "much of the reserved memory is never used by tensors",
		Help: "The peak of reserved memory exceeds the peak of allocated memory by more than max_fragmentation (by default 25% of the reserved memory), and by at least 5% of the usable memory. device.alloc_conf: expandable_segments:True often helps.",
		keys: []string{"device.alloc_conf", "train.batch_size", "device.gpu", "model", "models"},
	})
	notModelled = rule(Rule{
		ID: "MP006", Name: "not-modelled", Severity: Warning, Doc: "the figures leave something out",
		Help:   "The spec asks for something that memplan does not model yet. The message says how far the figures hold without it. Some operators leave something out in every job, because it depends on data or on the machine. That is not a finding: the summary says it once for all specs.",
		keys:   modelKeys,
		worded: true,
	})
	leak = rule(Rule{
		ID: "MP007", Name: "leak", Severity: Error, Doc: "memory grows from step to step",
		Help: "At the end of each step more GPU memory is allocated than at its start. The usual cause is a list of losses or outputs that still hold their autograd graphs; item: true or detach: true in keep prevents that. The finding is a warning if the job survives all steps that were simulated, or if only host memory grows.",
		at:   (*unit).leakAt,
	})
	tight = rule(Rule{
		ID: "MP008", Name: "tight", Severity: Warning, Doc: "the job fits only after cached memory is given back",
		Help: "The allocator fails to reserve memory, gives its cache back to the device and tries again (num_alloc_retries). That synchronizes the GPU and costs time in every step. If the job used a little more memory, it would run out of memory.",
		keys: sizeKeys,
	})
	sharedMemory = rule(Rule{
		ID: "MP009", Name: "shared-memory", Severity: Error, Doc: "workers of the data loader need more of /dev/shm than there is",
		Help: "Worker processes hand over batches through /dev/shm; if it is full, they fail with a bus error. A Docker container has 64 MiB unless --shm-size sets another size. Fewer workers or a lower prefetch_factor help. Without device.shm the rule finds nothing.",
		keys: []string{"device.shm", "data.loader.num_workers", "data"},
	})
	baselineRule = rule(Rule{
		ID: "MP010", Name: "baseline", Severity: Note, Doc: "a spec and its baseline do not match",
		Help: "The baseline has no figures for a new spec, or has figures for a spec that no longer exists, or was written for another GPU or by another version of memplan. Write a new baseline (--write-baseline).",
		keys: []string{"name", "memplan"},
	})
	uncertain = rule(Rule{
		ID: "MP011", Name: "uncertain", Severity: Warning, Doc: "the job may not fit if the uncertain sizes are at their largest",
		Help: "The headroom is less than the uncertainty of two sizes: the CUDA context and the cuDNN workspaces.",
		keys: sizeKeys,
	})
	estimateWarning = rule(Rule{
		ID: "MP012", Name: "estimate-warning", Severity: Note, Doc: "the estimate has a warning",
		Help:   "A warning of memplan estimate that no other rule covers: keys that change nothing, a GPU that is assumed, a PyTorch without kernels for the GPU.",
		keys:   modelKeys,
		worded: true,
	})
	configuration = rule(Rule{
		ID: "MP013", Name: "configuration", Severity: Warning, Doc: "the configuration of the gate changed",
		Help: "With --against-git the configuration of that commit counts, not the one in the working tree, so that a change cannot relax the gate that it has to pass. The finding says how the two differ, and how the files that they name differ. The new configuration counts after it is merged, or with --config.",
	})
	_ = rule(Rule{
		ID: "MP014", Name: "gpu-changed", Severity: Warning, Doc: "a GPU differs from the table's GPU of that name",
		Help: "A device_table describes a GPU under a name that memplan knows already, or a spec gives its GPU more memory, a smaller context, another architecture or another number of SMs than the table has. If that is intended, use another name.",
		keys: []string{"device.memory", "device.context", "device.gpu", "device"},
	})
	unfinished = rule(Rule{
		ID: "MP015", Name: "unfinished", Severity: Error, Doc: "the estimate of a spec was not finished",
		Help:   "Estimating the spec took more memory or time than --max-memory and --max-time allow, the check of all specs took too long (docs/limits.md), or memplan has a bug, which the message names. All other specs are checked, and the exit code is 3. The rule cannot be turned off.",
		Always: "the spec was not checked to the end",
	})
	_ = rule(Rule{
		ID: "MP016", Name: "unsettled", Severity: Error, Doc: "steps that were not simulated may need more memory",
		Help: "Steps are simulated until the memory of all later steps is known, whatever train.steps says. Here a limit was reached before that: either the intervals of the statements with every: have a common multiple that is too large, or memory differs from step to step without end. The verdict covers the steps that were simulated. Intervals that divide each other help.",
		keys: []string{"step", "eval", "train"},
	})
)

// LookupRule finds a rule by its identifier or name, in any case; nil if there
// is none.
func LookupRule(name string) *Rule {
	for _, r := range rules {
		if strings.EqualFold(r.ID, name) || strings.EqualFold(r.Name, name) {
			return r
		}
	}
	return nil
}

// RuleNames lists identifiers and names.
func RuleNames() []string {
	var out []string
	for _, r := range Rules() {
		out = append(out, r.ID, r.Name)
	}
	return out
}

// ruleSetting reads the severity that a user gives a rule.
func ruleSetting(rule, severity string) (id string, s Severity, err error) {
	r := LookupRule(rule)
	if r == nil {
		msg := fmt.Sprintf("unknown rule %q", rule)
		if n := nearest.To(rule, RuleNames()); n != "" {
			msg += fmt.Sprintf("; did you mean %q?", n)
		}
		return "", "", fmt.Errorf("%s (see memplan list rules)", msg)
	}
	for _, s := range severities {
		if string(s) != severity {
			continue
		}
		if r.Always != "" {
			return "", "", fmt.Errorf("rule %s is always an error: %s", r.ID, r.Always)
		}
		return r.ID, s, nil
	}
	return "", "", fmt.Errorf("rule %s: severity must be error, warning, note or off, not %q", r.ID, severity)
}
