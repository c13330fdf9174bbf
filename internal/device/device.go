// Package device is the table of GPUs: what a training job finds on each.
//
// One row is one GPU: its names, the memory that CUDA reports, its
// architecture, and what a CUDA context takes before the first tensor. Adding
// a GPU is adding one row to one of the rows_*.go files. A row must have a
// name, the marketed size, architecture, SM count and total; a context that
// no one has measured is left out and computed (see assumedContext).
//
// # Total memory
//
// Total is torch.cuda.get_device_properties().total_memory, which is the
// "total capacity" of PyTorch's out-of-memory messages. It is less than the
// marketed size, because firmware, page tables and ECC take their share before
// CUDA sees the device, and the share depends on the driver: an RTX 4090 has
// 23.65 GiB with older ones and 23.52 GiB since 560. A row gives the value
// most seen with recent Linux drivers on the whole GPU, and as its range what
// was seen on Linux since 2021. Under Windows (WDDM) GeForce cards report almost
// the marketed size (RTX 4090: 24563 MiB, RTX 3090: 24575 MiB) and page to host
// memory instead of failing; MIG slices and virtual GPUs are other devices.
// None of these is in a row.
//
// Sizes printed by PyTorch have two decimals in GiB, so a value taken from a
// message is good to 5 MiB. "x MB" in printed properties is MiB. Where a log has
// no date, the year is that of the software it names. A total that no one was
// found to report is taken from the nearest sibling of the same memory and
// architecture and marked as assumed.
//
// # ECC
//
// Data-center GPUs run with ECC, professional ones usually without. On GDDR
// memory ECC takes a sixteenth; switching it moves a GPU to the other end of its
// range. HBM has room of its own for it.
//
// # Unified memory
//
// Jetson modules have one memory for CPU and GPU. CUDA reports nearly all of it
// as the device's total, but the operating system, the process's own code and
// data, and all that PyTorch keeps on the CPU live there too; only what they
// leave can be reserved. No row knows how much that is: device.other_processes
// of a spec says it. A GH200 is another case: its CPU and GPU address each
// other's memory, but the GPU's is its own.
//
// # PyTorch's wheels
//
// The wheels of PyTorch 2.6 have kernels for sm_50, 60, 70, 75, 80, 86 and 90
// (torch.cuda.get_arch_list), and a GPU runs those of its own generation: so
// Pascal and Ada are supported, Blackwell only since 2.7 with CUDA 12.8. The
// wheels of CUDA 12.8 and later, in turn, are without Pascal (PyTorch 2.8,
// .ci/manywheel/build_cuda.sh).
//
// # Context
//
// Context is what the driver holds for one process beside the caching
// allocator's segments: context, loaded kernels, cuBLAS and cuDNN handles. It
// is read off out-of-memory messages of single-GPU processes:
//
//	context = memory in use by this process − allocated − reserved but unallocated
//
// The three figures are rounded, so one message is good to about 10 MiB. Where no
// other process shares the device, the memory in use and the free memory add up
// to the total within 20 MiB in the same messages, so that total − context is
// what the allocator can reserve.
// Kernels are loaded when first used (CUDA_MODULE_LOADING=LAZY, PyTorch's
// default since 1.13), hence the range: the low end is a bare context or a
// process that has hardly run, the high end one that has used many kernels.
// Contexts with all kernels are in context.go.
// NCCL's buffers, CUDA graphs and libraries beside PyTorch come on top and are
// not included; messages that are known to contain them were not counted.
package device

import (
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// GPU is one row of the table.
type GPU struct {
	// Name is the canonical name that specs and flags use: lower case, words
	// joined by hyphens.
	Name string
	// Display is the name to print: NVIDIA's, with the memory size where it
	// tells variants apart.
	Display string
	// Aliases are further names that mean this row and no other. Spellings
	// that Lookup takes for equal are not repeated.
	Aliases []string
	// Family is a short name that the row shares with variants of another
	// memory size ("a100"); "" for none. It names a GPU only while the family
	// has a single member in the table.
	Family string
	// MarketedGiB is the size that the product is sold with, in GiB. Only
	// Total says what is usable.
	MarketedGiB int
	// Arch is the compute capability times ten: 80 for sm_80.
	Arch int
	// SMs is the number of streaming multiprocessors.
	SMs int
	// SMsSource says who says so: the driver, NVIDIA, or else sites that collect what
	// NVIDIA publishes; "": no one was found, and the number is from memory.
	SMsSource string
	// Total is the device's memory as CUDA reports it.
	Total Figure
	// Context is what one PyTorch process takes beside its tensors.
	Context Figure
	// Unified says that the CPU shares the memory.
	Unified bool
}

// Figure is an observed size.
type Figure struct {
	// Value is the size that memplan calculates with.
	Value tensor.Bytes
	// Low and High bound what was seen, Value included.
	Low, High tensor.Bytes
	// Source says where and when each end was seen.
	Source string
	// Assumed says that it was not measured; Source then gives the reasoning.
	Assumed bool
}

// mib returns a measured figure whose sizes are given in MiB.
func mib(value, low, high tensor.Bytes, source string) Figure {
	return Figure{Value: value * tensor.MiB, Low: low * tensor.MiB, High: high * tensor.MiB, Source: source}
}

// likely returns a figure, in MiB, that no one has reported.
func likely(value, low, high tensor.Bytes, reason string) Figure {
	f := mib(value, low, high, "assumed: "+reason)
	f.Assumed = true
	return f
}

// threadsPerSM lists the resident threads per multiprocessor of each compute
// capability times ten (CUDA C++ Programming Guide 12.9 of 2025, technical
// specifications per compute capability).
var threadsPerSM = map[int]int{
	60:  2048,
	61:  2048,
	70:  2048,
	75:  1024,
	80:  2048,
	86:  1536,
	87:  1536,
	89:  1536,
	90:  2048,
	100: 2048,
	103: 2048,
	120: 1536,
	121: 1536,
}

// ThreadsPerSM returns how many threads can be resident on one multiprocessor
// (maxThreadsPerMultiProcessor). It follows from the architecture.
func (g *GPU) ThreadsPerSM() int { return threadsPerSM[g.Arch] }

// Usable returns what the caching allocator can reserve if nothing else runs
// on the device: total minus context.
func (g *GPU) Usable() tensor.Bytes { return g.Total.Value - g.Context.Value }

// Default is the name of the GPU that is meant if none is named. It is the one
// of the examples, and its figures are among the best documented.
const Default = "a100-40gb"

// families are the lists of rows, each the oldest architecture first.
var families = [][]GPU{
	slices.Concat(dataCenter, hopper),
	workstation,
	slices.Concat(geForceTuring, geForceAmpere, geForceAda, geForceBlackwell),
	jetson,
}

// table holds all rows in the order that All lists them.
var table = complete(slices.Concat(families...))

// complete fills in the contexts that were not measured.
func complete(rows []GPU) []GPU {
	for i := range rows {
		if g := &rows[i]; g.Context == (Figure{}) {
			g.Context = assumedContext(g.SMs * g.ThreadsPerSM())
		}
	}
	return rows
}

// assumedContext estimates the context of a GPU with so many resident threads.
//
// The driver sets aside local memory for every thread that can be resident at
// once, so a context grows with the chip and not with its memory. The line is
// a least-squares fit through the first thirteen rows, measured from 2024 to
// 2026. It is within 20 % of each of their values, and of those of the dozen
// GPUs added since (see the test); its bounds contain every context that was seen.
// No one measured Jetson modules and GPUs older than Volta.
func assumedContext(threads int) Figure {
	const base, perThread = 45 * tensor.MiB, 2176
	v := (base + perThread*tensor.Bytes(threads)).CeilTo(tensor.MiB)
	return Figure{
		Value:   v,
		Low:     v * 7 / 10,
		High:    v * 27 / 20,
		Source:  "assumed: 45 MiB + 2176 B per resident thread, the line through the measured GPUs",
		Assumed: true,
	}
}

// All returns a copy of every row: data-center GPUs, then professional ones,
// GeForce and Jetson; in each the oldest architecture first.
func All() []GPU {
	all := slices.Clone(table)
	for i := range all {
		all[i].Aliases = slices.Clone(all[i].Aliases)
	}
	return all
}
