package allocsim

import (
	"fmt"
	"math/bits"
	"strconv"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// options is the table of PYTORCH_CUDA_ALLOC_CONF, in the order of
// Config.String. The names are those of PyTorch 2.6's CUDAAllocatorConfig.cpp
// and of the younger options that torchver dates. The second name of an option
// is what ROCm builds call it; PyTorch accepts both everywhere.
//
// value reads and checks the option's value. notModelled marks the options that
// do not change what this package computes: host memory, locking, stream
// capture and address space.
var options = []struct {
	name, alias string
	value       func(*parser, *Config)
	notModelled bool
}{
	{name: "max_split_size_mb", value: func(p *parser, c *Config) { c.MaxSplitSize = p.splitSize() }},
	{name: "max_non_split_rounding_mb", value: func(p *parser, c *Config) { c.MaxNonSplitRounding = p.splitSize() }},
	{name: "roundup_power2_divisions", value: (*parser).divisions},
	{name: "garbage_collection_threshold", value: (*parser).threshold},
	{name: "expandable_segments", value: func(p *parser, c *Config) { c.ExpandableSegments = p.boolean() }},
	{name: "large_segment_size_mb", value: func(p *parser, c *Config) { c.LargeSegmentSize = p.mib(minLargeAlloc/tensor.MiB + 1) }},
	{name: "per_process_memory_fraction", value: (*parser).fraction},
	{name: "backend", value: (*parser).backend},
	{name: "release_lock_on_cudamalloc", alias: "release_lock_on_hipmalloc", value: (*parser).anyBoolean, notModelled: true},
	{name: "pinned_use_cuda_host_register", alias: "pinned_use_hip_host_register", value: (*parser).anyBoolean, notModelled: true},
	{name: "pinned_num_register_threads", value: (*parser).threads, notModelled: true},
	{name: "pinned_use_background_threads", value: (*parser).anyBoolean, notModelled: true},
	{name: "pinned_reserve_segment_size_mb", value: (*parser).anyMiB, notModelled: true},
	{name: "pinned_max_round_threshold_mb", value: (*parser).anyMiB, notModelled: true},
	{name: "pinned_max_cached_size_mb", value: (*parser).anyMiB, notModelled: true},
	{name: "pinned_free_catch_all", value: (*parser).anyBoolean, notModelled: true},
	{name: "graph_capture_record_stream_reuse", value: (*parser).anyBoolean, notModelled: true},
	{name: "expandable_segments_reserve", value: (*parser).anything, notModelled: true},
	{name: "expandable_segments_reserve_by_class", value: (*parser).anything, notModelled: true},
	{name: "throw_on_cudamalloc_oom", value: (*parser).throwOnOOM, notModelled: true},
}

// integer reads a whole number of at least low.
func (p *parser) integer(low int64, unit string) int64 {
	want := fmt.Sprintf("a whole number%s of at least %d", unit, low)
	t := p.word(want)
	if p.err != nil {
		return 0
	}
	v, err := strconv.ParseInt(t.text, 10, 64)
	if err != nil || v < low || t.text[0] == '+' {
		p.fail(t, "%s is %s; allowed is %s", p.name, t, want)
		return 0
	}
	return v
}

// mib reads a size in MiB, the unit that PyTorch's option names call "mb".
func (p *parser) mib(low tensor.Bytes) tensor.Bytes {
	t := p.peek()
	v := p.integer(int64(low), " (of MiB)")
	if v > int64(tensor.MaxBytes/tensor.MiB) {
		p.fail(t, "%s is %s; allowed is at most %d (MiB)", p.name, t, int64(tensor.MaxBytes/tensor.MiB))
		return 0
	}
	return tensor.Bytes(v) * tensor.MiB
}

// splitSize reads max_split_size_mb or max_non_split_rounding_mb. The bound is
// the size of a large segment; finish checks it where large_segment_size_mb,
// which may come later, moves it.
func (p *parser) splitSize() tensor.Bytes {
	low := largeBuffer / tensor.MiB
	if !p.version.Has(torchver.AllocatorSizesInclusive) {
		low++
	}
	s := splitSize{p.name, p.peek(), p.mib(low)}
	p.splitSizes = append(p.splitSizes, s)
	return s.size
}

// splitSize is a setting to hold against the large segment size.
type splitSize struct {
	name  string
	token token
	size  tensor.Bytes
}

// finish checks what takes all options to check.
func (p *parser) finish(c *Config) {
	for _, s := range p.splitSizes {
		if s.size < c.LargeSegmentSize {
			p.name = s.name
			p.fail(s.token, "%s is %s; allowed is large_segment_size_mb (%d) or more", s.name, s.token, int64(c.LargeSegmentSize/tensor.MiB))
		}
	}
}

func (p *parser) anyMiB(*Config)     { p.mib(1) }
func (p *parser) anyBoolean(*Config) { p.boolean() }

func (p *parser) boolean() bool {
	t := p.word(`"True" or "False"`)
	if p.err == nil && t.text != "True" && t.text != "False" {
		p.fail(t, `%s is %s; allowed are "True" and "False"`, p.name, t)
	}
	return t.text == "True"
}

// real reads a decimal number.
func (p *parser) real(want string) (float64, token) {
	t := p.word(want)
	if p.err != nil {
		return 0, t
	}
	v, err := strconv.ParseFloat(t.text, 64)
	if err != nil {
		p.fail(t, "%s is %s; allowed is %s", p.name, t, want)
	}
	return v, t
}

func (p *parser) threshold(c *Config) {
	const want = "a number between 0 and 1, both excluded"
	v, t := p.real(want)
	if !(v > 0 && v < 1) { // also refuses NaN
		p.fail(t, "%s is %s; allowed is %s", p.name, t, want)
	}
	c.GarbageCollectionThreshold = v
}

func (p *parser) fraction(c *Config) {
	const want = "a number from 0 to 1"
	v, t := p.real(want)
	if !(v >= 0 && v <= 1) {
		p.fail(t, "%s is %s; allowed is %s", p.name, t, want)
	}
	c.MemoryFraction = &v
}

func (p *parser) backend(*Config) {
	switch t := p.word(`"native"`); t.text {
	case "native":
	case "cudaMallocAsync":
		p.fail(t, `backend cudaMallocAsync is not modelled (the CUDA driver, not PyTorch, manages the memory); allowed is "native"`)
	default:
		p.fail(t, `backend is %s; allowed is "native" (PyTorch also has cudaMallocAsync, which is not modelled)`, t)
	}
}

func (p *parser) throwOnOOM(*Config) {
	if t := p.peek(); p.boolean() {
		p.fail(t, "throw_on_cudamalloc_oom:True is not modelled (it skips the retries before an out-of-memory error); allowed is False")
	}
}

func (p *parser) threads(*Config) {
	t := p.peek()
	if v := p.integer(1, ""); bits.OnesCount64(uint64(v)) > 1 || v > 128 {
		p.fail(t, "%s is %s; allowed are powers of two up to 128", p.name, t)
	}
}

// anything skips a value that is a word or a bracketed list.
func (p *parser) anything(*Config) {
	if p.peek().text != "[" {
		p.word("a value")
		return
	}
	for t := p.next(); p.err == nil && t.text != "]"; t = p.next() {
		if t.text == "" {
			p.fail(t, `%s: expected "]", found the end`, p.name)
		}
	}
}

// divisions reads roundup_power2_divisions: one number for all intervals, or a
// list. In a list the first key also sets every interval below its own, each
// later key sets one interval, and ">" sets the interval of the key before it
// and all above.
func (p *parser) divisions(c *Config) {
	const scalar = "a power of two, or a list such as [256:1,512:2,>:4]"
	d := &c.RoundupPower2Divisions
	if p.peek().text != "[" {
		t := p.word(scalar)
		v, ok := powerOfTwo(t.text)
		if p.err == nil && !ok {
			p.fail(t, "%s is %s; allowed is %s", p.name, t, scalar)
		}
		for i := range d {
			d[i] = v
		}
		return
	}
	p.next()
	last := 0
	for first := true; p.err == nil && p.peek().text != "]"; {
		key := p.word(`a size in MiB or ">"`)
		p.mark(":")
		val := p.word("a power of two or 0")
		if p.err != nil {
			return
		}
		v, ok := powerOfTwo(val.text)
		if !ok && val.text != "0" {
			p.fail(val, "%s: the divisions of %s are %s; allowed is a power of two, or 0 for none", p.name, key, val)
			return
		}
		if key.text == ">" {
			for i := last; i < len(d); i++ {
				d[i] = v
			}
		} else {
			mb, ok := powerOfTwo(key.text)
			if !ok {
				p.fail(key, `%s: the interval is %s; allowed is a power of two (MiB), or ">" for all larger sizes`, p.name, key)
				return
			}
			last = min(bits.Len64(uint64(mb))-1, len(d)-1)
			if first {
				for i := range last {
					d[i] = v
				}
				first = false
			}
			d[last] = v
		}
		switch t := p.peek(); t.text {
		case ",":
			p.next()
		case "]":
		default:
			p.fail(t, `%s: expected "," or "]", found %s`, p.name, t)
		}
	}
	p.mark("]")
}

// powerOfTwo reads a power of two that fits PyTorch's int.
func powerOfTwo(s string) (v int, ok bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err == nil && bits.OnesCount64(n) == 1
}
