package device

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Loading is when CUDA loads the kernels of a process (CUDA_MODULE_LOADING).
type Loading string

// The modes. PyTorch asks for Lazy since 1.13 (PR 86509), of which drivers and
// libraries since CUDA 11.7 take notice; before, all kernels of PyTorch, and those of
// cuBLAS and cuDNN with their first use, were part of every context.
const (
	Lazy  Loading = "lazy"
	Eager Loading = "eager"
)

// CUDA is a release of the CUDA toolkit that PyTorch was built with.
type CUDA struct{ Major, Minor int }

// ParseCUDA reads a release such as 11.3 or cu113.
func ParseCUDA(s string) (CUDA, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	major, minor, dotted := strings.Cut(text, ".")
	if digits, ok := strings.CutPrefix(text, "cu"); ok && len(digits) > 1 {
		major, minor, dotted = digits[:len(digits)-1], digits[len(digits)-1:], true
	}
	a, err := strconv.ParseUint(major, 10, 8)
	b, err2 := strconv.ParseUint(minor, 10, 8)
	if v := (CUDA{int(a), int(b)}); err == nil && err2 == nil && dotted && v.Major >= 9 && v.Major <= 20 && b < 10 {
		return v, nil
	}
	return CUDA{}, fmt.Errorf("cuda must be a release such as 11.3, 12.4 or cu124, not %q", s)
}

func (v CUDA) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Before reports whether v is older than another release.
func (v CUDA) Before(w CUDA) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// LazySince is the first release of which libraries can be loaded lazily (NVIDIA's
// "CUDA C++ Programming Guide", lazy loading; developer blog on CUDA 11.8).
var LazySince = CUDA{11, 7}

// Loads is the mode that PyTorch has with a release, unless the user says otherwise.
func (v CUDA) Loads() Loading {
	if v.Before(LazySince) {
		return Eager
	}
	return Lazy
}

// eagerContext is a context with all kernels that someone saw.
type eagerContext struct {
	gpu    string // of the table, or one of its architecture
	cuda   int    // major release
	size   tensor.Bytes
	source string
}

// eagerContexts are read off as in the package's text: from out-of-memory messages of
// PyTorch up to 1.12, where the memory in use is what neither is free nor reserved,
// and from nvidia-smi with one tensor, less its segment. Messages by which another
// process shares the device are left out.
var eagerContexts = []eagerContext{
	{"rtx-3090", 11, 1385 * tensor.MiB, "xiaoxiangAQ/GAS-Net#7: 23.70 GiB total, 21.95 reserved, 406.56 MiB free"},
	{"rtx-3090", 11, 1486 * tensor.MiB, "pytorch/pytorch#49877 (2020-12), torch 1.7.1+cu110: 1644 MiB with a tensor of 158 MiB"},
	{"rtx-3090", 11, 1644 * tensor.MiB, "Hugging Face on ZeRO (2021-01), t5-3b: 23.70 GiB total, 22.05 reserved, 45.69 MiB free"},
	{"rtx-3090", 11, 1685 * tensor.MiB, "pytorch/pytorch#55277 (2022-04), torch 1.8.2+cu111: 1687 MiB with a tensor of one number"},
	{"rtx-3090", 11, 1969 * tensor.MiB, "README of an image generator (about 2021): 23.70 GiB total, 21.70 reserved, 78.56 MiB free"},
	{"v100-16gb", 11, 1291 * tensor.MiB, "kchengiva/Shift-GCN#34 (2021-09): 15.78 GiB total, 14.34 reserved, 183.50 MiB free"},
	{"t4", 11, 1056 * tensor.MiB, "rshaojimmy/MADDoG#11 (2021-04): 14.76 GiB total, 13.71 reserved, 19.75 MiB free"},
	{"rtx-2080-ti", 10, 857 * tensor.MiB, "princeton-vl/pytorch_stacked_hourglass#18 (2020-09): 10.76 GiB total, 9.89 reserved, 34.44 MiB free"},
	{"rtx-2080-ti", 10, 865 * tensor.MiB, "hujiecpp/ISTR#21 (2021): 10.76 GiB total, 9.89 reserved, 25.56 MiB free"},
	{"rtx-2080-ti", 10, 877 * tensor.MiB, "pytorch/pytorch#49877 (2020-12), torch 1.6.0+cu101: 1035 MiB with a tensor of 158 MiB"},
	{"gtx-1080", 10, 719 * tensor.MiB, "pytorch/pytorch#55277 (2022-04), torch 1.8.2+cu101: 721 MiB with a tensor of one number"},
	{"p100-16gb", 10, 710 * tensor.MiB, "2KangHo/vdsr_pytorch#2 (2020-05): 15.90 GiB total, 14.80 reserved, 415.88 MiB free"},
}

// lazyKernels is the least that all kernels take beside those that a lazy context has
// loaded, where both were compared in one process (PyTorch PR 86509, 2022: 666632192
// and 287047680 bytes with one tensor, on a GPU that it does not name).
const lazyKernels = 362 * tensor.MiB

// ContextWith is the context with a release of CUDA that loads kernels in a mode. One
// that loads all of them is the lazy one and what the GPUs in eagerContexts have on
// top of theirs, between the least and the most of them; no one says how it grows with
// the chip. Their releases are 10 and 11; later ones are taken to be like 11, or as
// little as lazyKernels.
func (g *GPU) ContextWith(v CUDA, mode Loading) Figure {
	if mode != Eager {
		return g.Context
	}
	var more []tensor.Bytes
	var sources []string
	least, most := tensor.Bytes(0), tensor.Bytes(0)
	for _, e := range eagerContexts {
		if e.cuda != min(max(v.Major, 10), 11) {
			continue
		}
		row, err := Lookup(e.gpu)
		if err != nil {
			continue
		}
		c := row.Context
		if len(more) == 0 {
			least = e.size
		}
		least, most = min(least, e.size-c.High), max(most, e.size-c.Low)
		more = append(more, e.size-c.Value)
		sources = append(sources, e.source)
	}
	var sum tensor.Bytes
	for _, n := range more {
		sum += n
	}
	mean := (sum / tensor.Bytes(len(more))).CeilTo(tensor.MiB)
	if !v.Before(LazySince) {
		least = lazyKernels
	}
	c := g.Context
	return Figure{
		Value: c.Value + mean, Low: c.Low + least, High: c.High + most,
		Source:  fmt.Sprintf("all kernels loaded, CUDA %v: %v to %v on top of a lazy context, %v in the mean of %s", v, least, most, mean, strings.Join(sources, "; ")),
		Assumed: true,
	}
}
