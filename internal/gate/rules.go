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
	Help     string   // what it means, and what to do
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
		Help:   "The file is missing or cannot be read, is not valid YAML, or says something that memplan does not know.\nWhile a spec cannot be read the exit code is 2; all others are checked all the same. The rule cannot be turned off.\nAn internal error is a bug in memplan: the spec was not checked, and the exit code is 3.",
		Always: "a spec that cannot be read was not checked",
		worded: true,
	})
	predictedOOM = rule(Rule{
		ID: "MP001", Name: "predicted-oom", Severity: Error, Doc: "the job runs out of GPU memory",
		Help: "The simulated allocator cannot serve a request, as PyTorch would not: torch.OutOfMemoryError. The message names the\nstep, the phase and the operator. Smaller batches, gradient accumulation, checkpointing, a lower precision or a\nlarger GPU help; memplan estimate shows what the peak is made of.",
		keys: sizeKeys,
	})
	headroom = rule(Rule{
		ID: "MP002", Name: "headroom", Severity: Error, Doc: "less memory is left free than the configuration asks for",
		Help: "Headroom is the usable memory of the GPU less the peak of reserved memory. It is compared with headroom of the\nconfiguration (--headroom), a share of the usable memory such as 5% or a size such as 2GiB. Without it the rule is silent.",
		keys: sizeKeys,
	})
	growth = rule(Rule{
		ID: "MP003", Name: "growth", Severity: Error, Doc: "the job needs more memory than it did",
		Help: "The peak of allocated memory, of reserved memory, or of reserved memory with the workspaces that cuDNN is expected to\ntake is greater than in the baseline (--against) or in the spec of an earlier commit (--against-git), by more than\nmax_growth (--max-growth): a share such as 5%, which is the default, or a size. If it is meant, write a new baseline.",
		keys: sizeKeys,
	})
	hostRAM = rule(Rule{
		ID: "MP004", Name: "host-ram", Severity: Error, Doc: "the job needs more of host memory than there is",
		Help: "Processes, the data set, the loader, pinned and offloaded tensors and saving a checkpoint take more than\ndevice.host_ram. If only the worst of what is assumed does, the finding is a warning. Without device.host_ram the rule is silent.",
		keys: []string{"device.host_ram", "data", "train.batch_size"},
	})
	fragmentation = rule(Rule{
		ID: "MP005", Name: "fragmentation", Severity: Warning, Doc: "much of the reserved memory lies unused",
		Help: "The allocator reserves more than tensors ever hold at once, by more than max_fragmentation (25% by default) of what it\nreserves, and the difference is 5% of the usable memory or more.\ndevice.alloc_conf: expandable_segments:True often helps.",
		keys: []string{"device.alloc_conf", "train.batch_size", "device.gpu", "model", "models"},
	})
	notModelled = rule(Rule{
		ID: "MP006", Name: "not-modelled", Severity: Warning, Doc: "the figures leave something out",
		Help:   "The spec asks for something that memplan does not model yet; the message says what the figures are worth without it.\nWhat operators leave out whatever a spec says, as it depends on data or on the machine, is no finding: the summary says it\nonce for all specs.",
		keys:   modelKeys,
		worded: true,
	})
	leak = rule(Rule{
		ID: "MP007", Name: "leak", Severity: Error, Doc: "memory grows from step to step",
		Help: "Each step leaves more on the GPU than it found: mostly a list of losses or outputs that still hold their graphs (item: true or\ndetach: true beside keep mends it). Where the job lives through all steps that were simulated, or only host memory grows, the\nfinding is a warning.",
		at:   (*unit).leakAt,
	})
	tight = rule(Rule{
		ID: "MP008", Name: "tight", Severity: Warning, Doc: "the job fits only after cached memory is given back",
		Help: "The allocator fails to reserve, gives its cache back to the device and tries again (num_alloc_retries), which\nsynchronizes the GPU and costs time in every step. A little more memory in use and the job runs out of memory.",
		keys: sizeKeys,
	})
	sharedMemory = rule(Rule{
		ID: "MP009", Name: "shared-memory", Severity: Error, Doc: "workers of the data loader need more of /dev/shm than there is",
		Help: "Worker processes hand over batches through /dev/shm; if it is full they fail with a bus error. A Docker container has\n64 MiB unless --shm-size says more. Fewer workers or a lower prefetch_factor help. Without device.shm the rule is silent.",
		keys: []string{"device.shm", "data.loader.num_workers", "data"},
	})
	baselineRule = rule(Rule{
		ID: "MP010", Name: "baseline", Severity: Note, Doc: "a spec and its baseline do not go together",
		Help: "The baseline has no figures for the spec, as it is new; it has figures of a spec that is gone; or it was made on\nanother GPU or by another version of memplan. Write a new baseline (--write-baseline).",
		keys: []string{"name", "memplan"},
	})
	uncertain = rule(Rule{
		ID: "MP011", Name: "uncertain", Severity: Warning, Doc: "the job may not fit if what is uncertain is at its worst",
		Help: "The headroom is less than what memplan cannot know for certain: the CUDA context, and the workspaces of cuDNN.",
		keys: sizeKeys,
	})
	estimateWarning = rule(Rule{
		ID: "MP012", Name: "estimate-warning", Severity: Note, Doc: "the estimate warns of something",
		Help:   "What memplan estimate prints as a warning beside the above: keys that change nothing, a GPU that is assumed, a\nPyTorch without kernels for the GPU.",
		keys:   modelKeys,
		worded: true,
	})
	configuration = rule(Rule{
		ID: "MP013", Name: "configuration", Severity: Warning, Doc: "the configuration of the gate changed",
		Help: "With --against-git the configuration of that commit counts, not the one beside the specs, so that a change cannot\nwiden the gate that it has to pass; the finding says how they differ, the files that they name included. What is new in the configuration\ncounts once it is merged, or with --config.",
	})
	_ = rule(Rule{
		ID: "MP014", Name: "gpu-changed", Severity: Warning, Doc: "a GPU is not what its name stands for",
		Help: "A device_table describes a GPU under the name of one that memplan knows; or a spec gives its GPU, be it of that table, of\nmemplan's own or the one that is assumed, more memory, a smaller context, another architecture or other SMs. Where that is meant, another name\nsays so.",
		keys: []string{"device.memory", "device.context", "device.gpu", "device"},
	})
	unfinished = rule(Rule{
		ID: "MP015", Name: "unfinished", Severity: Error, Doc: "the estimate of a spec did not come to its end",
		Help:   "Estimating the spec takes more memory or time than --max-memory and --max-time allow, the check as a whole took too\nlong (docs/limits.md), or memplan itself made a mistake, which the message names. All others are checked all the same, and the exit code\nis 3. The rule cannot be turned off.",
		Always: "the spec was not checked to the end",
	})
	_ = rule(Rule{
		ID: "MP016", Name: "unsettled", Severity: Error, Doc: "steps that were not simulated may need more memory",
		Help: "A spec is simulated until all that comes after is known, whatever train.steps says. Here the limit was met before: statements with\nevery: repeat as a whole too late, or memory differs from step to step without an end. The verdict is of the\nsteps that were simulated. Intervals that divide each other help.",
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
