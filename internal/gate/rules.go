package gate

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/nearest"
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
	// keys of a spec that a finding is about; its place is the first that the
	// spec has.
	keys []string
}

// sizeKeys are what one changes first when a job is too large.
var sizeKeys = []string{"train.batch_size", "device.gpu", "device.memory", "model", "models"}

// Rules is the table of rules.
var Rules = []Rule{
	{"MP000", "spec-error", Error, "a spec, or a file that it names, cannot be read",
		"The file is missing or cannot be read, is not valid YAML, or says something that memplan does not know.\nWhile a spec cannot be read the exit code is 2; all others are checked all the same. The rule cannot be turned off.\nAn internal error is a bug in memplan: the spec was not checked, and the exit code is 3.", nil},
	{"MP001", "predicted-oom", Error, "the job runs out of GPU memory",
		"The simulated allocator cannot serve a request, as PyTorch would not: torch.OutOfMemoryError. The message names the\nstep, the phase and the operator. Smaller batches, gradient accumulation, checkpointing, a lower precision or a\nlarger GPU help; memplan estimate shows what the peak is made of.", sizeKeys},
	{"MP002", "headroom", Error, "less memory is left free than the configuration asks for",
		"Headroom is the usable memory of the GPU less the peak of reserved memory. It is compared with headroom of the\nconfiguration (--headroom), a share of the usable memory such as 5% or a size such as 2GiB. Without it the rule is silent.", sizeKeys},
	{"MP003", "growth", Error, "the job needs more memory than it did",
		"The peak of allocated memory, of reserved memory, or of reserved memory with the workspaces that cuDNN is expected to\ntake is greater than in the baseline (--against) or in the spec of an earlier commit (--against-git), by more than\nmax_growth (--max-growth): a share such as 5%, which is the default, or a size. If it is meant, write a new baseline.", sizeKeys},
	{"MP004", "host-ram", Error, "the job needs more of the machine's own memory than there is",
		"Processes, the data set, the loader, pinned and offloaded tensors and saving a checkpoint take more than\ndevice.host_ram. If only the worst of what is assumed does, the finding is a warning. Without device.host_ram the rule is silent.",
		[]string{"device.host_ram", "data", "train.batch_size"}},
	{"MP005", "fragmentation", Warning, "much of the reserved memory lies unused",
		"The allocator reserves more than tensors ever hold at once, by more than max_fragmentation (25% by default) of what it\nreserves, and the difference is 5% of the usable memory or more.\ndevice.alloc_conf: expandable_segments:True often helps.",
		[]string{"device.alloc_conf", "train.batch_size", "device.gpu", "model", "models"}},
	{"MP006", "not-modelled", Warning, "the figures leave something out",
		"The spec asks for something that memplan does not model yet; the message says what the figures are worth without it.\nWhat operators leave out whatever a spec says, as it depends on data or on the machine, is no finding: the summary says it\nonce for all specs.", nil},
	{"MP007", "leak", Error, "memory grows from step to step",
		"Each step leaves more on the GPU than it found: mostly a list of losses or outputs that still hold their graphs (item: true or\ndetach: true beside keep mends it). Where the job lives through all steps that were simulated, or only the machine's own memory grows, the\nfinding is a warning.",
		[]string{"train.keep", "step", "train.loop", "train"}},
	{"MP008", "tight", Warning, "the job fits only after cached memory is given back",
		"The allocator fails to reserve, gives its cache back to the device and tries again (num_alloc_retries), which\nsynchronizes the GPU and costs time in every step. A little more memory in use and the job dies.", sizeKeys},
	{"MP009", "shared-memory", Error, "workers of the data loader need more of /dev/shm than there is",
		"Worker processes hand over batches through /dev/shm; if it is full they die of a bus error. A Docker container has\n64 MiB unless --shm-size says more. Fewer workers or a lower prefetch_factor help. Without device.shm the rule is silent.",
		[]string{"device.shm", "data.loader.num_workers", "data"}},
	{"MP010", "baseline", Note, "a spec and its baseline do not go together",
		"The baseline has no figures for the spec, as it is new; it has figures of a spec that is gone; or it was made on\nanother GPU or by another version of memplan. Write a new baseline (--write-baseline).", []string{"name", "memplan"}},
	{"MP011", "uncertain", Warning, "the job may not fit if what is uncertain is at its worst",
		"The headroom is less than what memplan cannot know for certain: the CUDA context, and the workspaces of cuDNN.", sizeKeys},
	{"MP012", "estimate-warning", Note, "the estimate warns of something",
		"What memplan estimate prints as a warning beside the above: keys that change nothing, a GPU that is assumed, a\nPyTorch without kernels for the GPU.", nil},
	{"MP013", "configuration", Warning, "the configuration of the gate changed",
		"With --against-git the configuration of that commit counts, not the one beside the specs, so that a change cannot\nwiden the gate that it has to pass; the finding says how they differ, the files that they name included. What is new in the configuration\ncounts once it is merged, or with --config.", nil},
	{"MP014", "gpu-changed", Warning, "a GPU is not what its name stands for",
		"A device_table describes a GPU under the name of one that memplan knows; or a spec gives its GPU, be it of that table, of\nmemplan's own or the one that is assumed, more memory, a smaller context, another architecture or other SMs. Where that is meant, another name\nsays so.", []string{"device.memory", "device.context", "device.gpu", "device"}},
	{"MP015", "unfinished", Error, "the estimate of a spec did not come to its end",
		"Estimating the spec takes more memory or time than --max-memory and --max-time allow, the check as a whole took too\nlong (docs/limits.md), or memplan itself made a mistake, which the message names. All others are checked all the same, and the exit code\nis 3. The rule cannot be turned off.", nil},
	{"MP016", "unsettled", Error, "steps that were not simulated may need more memory",
		"A spec is simulated until all that comes after is known, whatever train.steps says. Here the limit was met before: what runs in every\nn-th step comes round together too late, or memory differs from step to step without an end. The verdict is of the\nsteps that were simulated. Intervals that divide each other help.",
		[]string{"step", "eval", "train"}},
}

// The rules by what they are about.
const (
	specError = iota
	predictedOOM
	headroom
	growth
	hostRAM
	fragmentation
	notModelled
	leak
	tight
	sharedMemory
	baselineRule
	uncertain
	estimateWarning
	configuration
	gpuChanged
	unfinished
	unsettled
)

// LookupRule finds a rule by its identifier or name, in any case; nil if there
// is none.
func LookupRule(name string) *Rule {
	for i := range Rules {
		if r := &Rules[i]; strings.EqualFold(r.ID, name) || strings.EqualFold(r.Name, name) {
			return r
		}
	}
	return nil
}

// RuleNames lists identifiers and names.
func RuleNames() []string {
	var out []string
	for _, r := range Rules {
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
		switch r {
		case &Rules[specError]:
			return "", "", fmt.Errorf("rule %s is always an error: a spec that cannot be read was not checked", r.ID)
		case &Rules[unfinished]:
			return "", "", fmt.Errorf("rule %s is always an error: the spec was not checked to the end", r.ID)
		}
		return r.ID, s, nil
	}
	return "", "", fmt.Errorf("rule %s: severity must be error, warning, note or off, not %q", r.ID, severity)
}
