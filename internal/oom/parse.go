package oom

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Kind says whose message it is.
type Kind string

// The kinds of failures.
const (
	Device Kind = "device" // PyTorch's caching allocator, with figures
	Async  Kind = "async"  // the cudaMallocAsync backend
	MPS    Kind = "mps"    // Apple's GPUs
	Driver Kind = "driver" // CUDA itself, without figures
	CuBLAS Kind = "cublas"
	CuDNN  Kind = "cudnn"
	NCCL   Kind = "nccl"
	CPU    Kind = "cpu"    // the allocator of host memory
	Pinned Kind = "pinned" // host memory again, page-locked, which CUDA allocates and words as if it were a GPU's
	Shared Kind = "shm"    // /dev/shm
	Killed Kind = "killed" // by the kernel or a scheduler, for host memory
)

// Process is another process on the GPU, as NVML lists it.
type Process struct {
	PID   int64        `json:"pid"`
	Bytes tensor.Bytes `json:"bytes"`
}

// Failure is one message. Sizes that it does not state are -1.
type Failure struct {
	Kind Kind   `json:"kind"`
	Line int    `json:"line"` // of the log, from 1
	Text string `json:"text"` // the message, on one line
	GPU  int    `json:"gpu"`  // -1: not said
	Rank int    `json:"rank"` // of torchrun; -1: not said

	Tried        tensor.Bytes `json:"tried_bytes"`
	Total        tensor.Bytes `json:"total_bytes"`
	Free         tensor.Bytes `json:"free_bytes"`
	Allowed      tensor.Bytes `json:"allowed_bytes"` // by a memory fraction
	InUse        tensor.Bytes `json:"in_use_bytes"`  // of this process, PyTorch's and not
	Allocated    tensor.Bytes `json:"allocated_bytes"`
	PrivatePools tensor.Bytes `json:"private_pools_bytes"` // part of Allocated
	Reserved     tensor.Bytes `json:"reserved_bytes"`
	Processes    []Process    `json:"processes"`

	// Progress is the largest number of steps that the log shows before the
	// message; 0: none.
	Progress int64 `json:"progress"`

	Place *Place `json:"place,omitempty"` // where the traceback above ends; nil: there is none

	counted bool  // the log shows steps before the message, be it step 0
	every   int64 // the least that is between two counts of steps; 0: not known
}

const none = tensor.Bytes(-1)

// size is how PyTorch prints bytes.
const size = `([0-9]+(?:\.[0-9]+)?) ?(bytes|B|KB|MB|GB|KiB|MiB|GiB|TiB)`

var (
	// anchors are what every message of a kind contains.
	anchors = []struct {
		kind Kind
		re   *regexp.Regexp
	}{
		{Device, regexp.MustCompile(`(?:CUDA|HIP|XPU|Metal) out of memory\. +Tried to allocate`)},
		{MPS, regexp.MustCompile(`MPS backend out of memory`)},
		{Async, regexp.MustCompile(`Allocation on device(?: [0-9]+)? +would exceed allowed memory`)},
		{CuBLAS, regexp.MustCompile(`CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)`)},
		{CuDNN, regexp.MustCompile(`CUDNN_STATUS_(?:ALLOC_FAILED|INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)|[Uu]nable to find (?:a valid cuDNN algorithm|an engine to execute)`)},
		{NCCL, regexp.MustCompile(`(?i)cuda failure (?:2 )?'out of memory'`)},
		{Shared, regexp.MustCompile(`killed by signal: Bus error|insufficient shared memory \(shm\)|unable to (?:open|write to|allocate|mmap) shared memory|unable to resize file .*No space left on device`)},
		{CPU, regexp.MustCompile(`DefaultCPUAllocator: (?:can't allocate|not enough) memory|not enough memory: you tried to allocate|Cannot allocate memory|\bMemoryError\b`)},
		{Killed, regexp.MustCompile(`killed by signal: Killed|[Oo]ut of memory: Kill(?:ed)? process|oom[-_]kill|OOMKilled|oom_reaper|Exceeded (?:job|step) memory limit`)},
		{Driver, regexp.MustCompile(`CUDA error(?: \([0-9]+\))?: out of memory|cuda runtime error \(2\) ?: out of memory|CUDA_ERROR_OUT_OF_MEMORY|error=2 : out of memory|cudaErrorMemoryAllocation|CUDA driver error: out of memory`)},
	}

	tried       = regexp.MustCompile(`Tried to allocate ` + size)
	oldForm     = regexp.MustCompile(`\(GPU ([0-9]+); ` + size + ` total capacity; ` + size + ` already allocated; ` + size + ` free; (?:` + size + ` allowed; )?` + size + ` (?:cached|reserved in total)`)
	capacity    = regexp.MustCompile(`GPU ([0-9]+) has a total capac(?:i)?ty of ` + size + ` of which ` + size + ` is free`)
	thisProcess = regexp.MustCompile(`this process has ` + size + ` memory in use`)
	process     = regexp.MustCompile(`Process ([0-9]+) has ` + size + ` memory in use`)
	allowed     = regexp.MustCompile(size + ` allowed;`)
	allocated   = regexp.MustCompile(`Of the allocated memory ` + size + ` is allocated by PyTorch`)
	pools       = regexp.MustCompile(`with ` + size + ` allocated in private pools`)
	unallocated = regexp.MustCompile(`and ` + size + ` is reserved by PyTorch but unallocated`)

	// asyncAlone is what Python mostly shows of cudaMallocAsync's message: the
	// number of the device is written as a character, often NUL, which ends the
	// text.
	asyncAlone  = regexp.MustCompile(`(?:OutOfMemoryError:|Message:\**|!!!) (Allocation on device)$`)
	asyncDevice = regexp.MustCompile(`on device ([0-9]+)`)
	asyncCur    = regexp.MustCompile(`Currently allocated ?: ?` + size)
	asyncTried  = regexp.MustCompile(`Requested ?: ?` + size)
	asyncTotal  = regexp.MustCompile(`Device limit ?: ?` + size)
	asyncFree   = regexp.MustCompile(`Free \(according to CUDA\) ?: ?` + size)
	asyncLimit  = regexp.MustCompile(`user-supplied memory fraction\) ?: ?` + size)

	mpsForm  = regexp.MustCompile(`\(MPS allocated: ` + size + `, other allocations: ` + size + `, max allowed: ` + size + `\)`)
	cpuTried = regexp.MustCompile(`tried to allocate ([0-9]+) bytes`)

	// pinned is what a traceback has where host memory was to be page-locked.
	pinned = regexp.MustCompile(`pin_memory|\bpinned\b|cudaHostAlloc|cudaHostRegister`)

	rank   = regexp.MustCompile(`\[rank([0-9]+)\]`)
	prefix = regexp.MustCompile(`^\s*(?:\[[a-z]*rank[ ]?[0-9]+\]:?|\[[0-9]+\]:|\((?:[A-Za-z_]+ )?pid=[0-9]+[^)]*\)|[│|])\s*`)
	// Counters of steps: a progress bar's 12/345 [, or step 12.
	bar     = regexp.MustCompile(`\b([0-9]{1,12})/[0-9]{1,12} \[`)
	counter = regexp.MustCompile(`(?i)\b(?:global_step|step|iter(?:ation)?|batch)[s ]*[:=#\[ ]\s*([0-9]{1,12})\b`)
)

// traceback is how many lines before a message are looked at for its cause.
const traceback = 12

// reach is how far behind its anchor a message is looked at, in bytes.
const reach = 2000

// maxFailures bounds the messages of a log that are read.
const maxFailures = 1000

// Parse finds all messages of a log, or the first of very many. One that is
// repeated word for word, as when an exception is chained or printed twice, is
// taken once.
func Parse(log string) []*Failure {
	var out []*Failure
	seen := map[string]*Failure{}
	before := map[int]int{} // of each rank: the line behind its last message
	lines := strings.SplitAfter(log, "\n")
	progress, every, counted := int64(0), int64(0), false
	lastShared := -1000
	for i, line := range lines {
		if n := steps(line); n >= 0 {
			if counted && n > progress {
				if d := n - progress; every == 0 || d < every {
					every = d
				}
			}
			counted, progress = true, max(progress, n)
		}
		// Some messages are wrapped: the anchor may end on the next line.
		here, next := clean(line), ""
		if i+1 < len(lines) {
			next = clean(lines[i+1])
		}
		kind, at := anchor(here, next)
		if kind == "" || at >= len(here) {
			continue
		}
		if kind == Driver && pinned.MatchString(strings.Join(lines[max(0, i-traceback):i], "")) {
			kind = Pinned
		}
		f := &Failure{Kind: kind, Line: i + 1, GPU: -1, Rank: -1, Tried: none, Total: none, Free: none, Allowed: none, InUse: none,
			Allocated: none, PrivatePools: none, Reserved: none, Processes: []Process{}, Progress: progress, counted: counted, every: every}
		if m := rank.FindStringSubmatch(line); m != nil {
			f.Rank = int(number(m[1]))
		}
		text := here[at:]
		alone := kind == Async && !strings.Contains(text+next, "would exceed")
		for _, l := range lines[i+1:] {
			if alone || len(text) > reach || kind != Device && kind != Async && strings.Count(text, " ") > 60 {
				break
			}
			c := clean(l)
			if c == "" || kind != Device && kind != Async || starts(c) {
				break
			}
			text += " " + c
		}
		f.Text = trim(text)
		f.read()
		f.Place = readPlace(lines, before[f.Rank], i, f.Rank)
		before[f.Rank] = i + 1
		if kind == Shared { // the worker says it, then the loader
			if i-lastShared < 40 {
				continue
			}
			lastShared = i
		}
		key := string(kind) + strconv.Itoa(f.Rank) + f.Text
		if first := seen[key]; first != nil {
			if first.Place == nil { // it was logged before it was raised
				first.Place = f.Place
			}
		} else {
			seen[key] = f
			if out = append(out, f); len(out) == maxFailures {
				break
			}
		}
	}
	return out
}

// anchor finds the first message of a line, which may end on the next one.
func anchor(here, next string) (Kind, int) {
	if !suspicious(here + " " + next) {
		return "", -1
	}
	if m := asyncAlone.FindStringSubmatchIndex(here); m != nil {
		return Async, m[2]
	}
	for _, a := range anchors {
		if m := a.re.FindStringIndex(here + " " + next); m != nil {
			return a.kind, m[0]
		}
	}
	return "", -1
}

// clean strips what launchers and tracebacks put before a line, and joins its
// blanks.
func clean(line string) string {
	for range 4 {
		short := prefix.ReplaceAllString(line, "")
		if short == line {
			break
		}
		line = short
	}
	return strings.TrimRight(strings.Join(strings.Fields(line), " "), " │|")
}

var starters = regexp.MustCompile(`^(?:Traceback|File "|During handling|The above exception|\S*Error:|Exception in|Process finished)`)

// starts reports whether a line begins something other than the rest of a
// message.
func starts(line string) bool { return starters.MatchString(line) }

// ends are the last words of messages.
var ends = regexp.MustCompile(`environment-variables\)|PYTORCH_CUDA_ALLOC_CONF$|to avoid fragmentation\.|reserved in total by PyTorch\)|cached\)|but unallocated\.`)

func trim(s string) string {
	last := -1
	for _, m := range ends.FindAllStringIndex(s, -1) {
		last = m[1]
	}
	if last > 0 {
		s = s[:last]
	}
	if len(s) > reach {
		s = strings.ToValidUTF8(s[:reach], "")
	}
	return s
}

// barEnd is how much of the end of a line is looked at for steps: a progress bar may
// be rewritten many times, and the last time counts.
const barEnd = 500

// words are such that each message has one of them, in any case.
var words = []string{"memory", "alloc", "cublas", "cudnn", "nable to find", "bus error", "kill", "oom", "space left"}

// suspicious reports whether a text may hold a message; most lines do not, and this
// is sooner told than what it is.
func suspicious(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// steps is the largest count of steps that a line shows; -1 if there is none.
func steps(line string) int64 {
	n := int64(-1)
	if len(line) > barEnd {
		line = line[len(line)-barEnd:]
	}
	for _, re := range []*regexp.Regexp{bar, counter} {
		for _, m := range re.FindAllStringSubmatch(line, -1) {
			n = max(n, number(m[1]))
		}
	}
	return n
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

var units = map[string]float64{"bytes": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

// bytes reads a size; one beyond a PiB stands for no limit.
func bytes(value, unit string) tensor.Bytes {
	x, err := strconv.ParseFloat(value, 64)
	if x *= units[unit]; err != nil || x > 1<<50 {
		return none
	}
	return tensor.Bytes(x)
}

// read takes the figures from the text.
func (f *Failure) read() {
	get := func(re *regexp.Regexp, to *tensor.Bytes) {
		if m := re.FindStringSubmatch(f.Text); m != nil {
			*to = bytes(m[1], m[2])
		}
	}
	get(tried, &f.Tried)
	switch f.Kind {
	case Device:
		f.readDevice(get)
	case Async:
		if m := asyncDevice.FindStringSubmatch(f.Text); m != nil {
			f.GPU = int(number(m[1]))
		}
		get(asyncCur, &f.Allocated)
		get(asyncTried, &f.Tried)
		get(asyncTotal, &f.Total)
		get(asyncFree, &f.Free)
		get(asyncLimit, &f.Allowed)
	case MPS:
		if m := mpsForm.FindStringSubmatch(f.Text); m != nil {
			f.Allocated, f.Allowed = bytes(m[1], m[2]), bytes(m[5], m[6])
		}
	case CPU:
		if m := cpuTried.FindStringSubmatch(f.Text); m != nil {
			f.Tried = tensor.Bytes(number(m[1]))
		}
	}
}

func (f *Failure) readDevice(get func(*regexp.Regexp, *tensor.Bytes)) {
	if m := oldForm.FindStringSubmatch(f.Text); m != nil {
		f.GPU = int(number(m[1]))
		f.Total, f.Allocated, f.Free = bytes(m[2], m[3]), bytes(m[4], m[5]), bytes(m[6], m[7])
		if m[8] != "" {
			f.Allowed = bytes(m[8], m[9])
		}
		f.Reserved = bytes(m[10], m[11])
		return
	}
	if m := capacity.FindStringSubmatch(f.Text); m != nil {
		f.GPU = int(number(m[1]))
		f.Total, f.Free = bytes(m[2], m[3]), bytes(m[4], m[5])
	}
	get(thisProcess, &f.InUse)
	for _, m := range process.FindAllStringSubmatch(f.Text, -1) {
		f.Processes = append(f.Processes, Process{number(m[1]), bytes(m[2], m[3])})
	}
	get(allowed, &f.Allowed)
	get(allocated, &f.Allocated)
	get(pools, &f.PrivatePools)
	rest := none
	get(unallocated, &rest)
	if f.Allocated >= 0 && rest >= 0 {
		f.Reserved = f.Allocated + rest
	}
	f.own()
}

// own recognizes this process among the numbered ones: in a container NVML
// numbers it otherwise, and the message lists it as another one. It holds at
// least what PyTorch reserved; of several such, the nearest is taken.
func (f *Failure) own() {
	if f.InUse >= 0 || f.Reserved < 0 {
		return
	}
	best := -1
	for i, p := range f.Processes {
		if p.Bytes >= f.Reserved && (best < 0 || p.Bytes < f.Processes[best].Bytes) {
			best = i
		}
	}
	if best >= 0 {
		f.InUse = f.Processes[best].Bytes
		f.Processes = append(f.Processes[:best:best], f.Processes[best+1:]...)
	}
}
