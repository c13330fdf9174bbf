package oom

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
)

const (
	mib = tensor.Bytes(1) << 20
	gib = tensor.Bytes(1) << 30
)

func g(x float64) tensor.Bytes { return tensor.Bytes(x * float64(gib)) }
func m(x float64) tensor.Bytes { return tensor.Bytes(x * float64(mib)) }

// Messages as releases of PyTorch word them, most from public bug reports.
var messages = []struct {
	name, log string
	want      Failure // sizes of 0 are not stated
	causes    []Cause
}{
	{"1.0: cached", "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB already allocated; 9.28 GiB free; 4.68 MiB cached)",
		Failure{Kind: Device, GPU: 0, Tried: m(12.5), Total: g(10.92), Allocated: m(8.57), Free: g(9.28), Reserved: m(4.68)}, []Cause{Size}},
	{"1.8", "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 1; 7.79 GiB total capacity; 5.93 GiB already allocated; 15.12 MiB free; 6.05 GiB reserved in total by PyTorch)",
		Failure{Kind: Device, GPU: 1, Tried: m(20), Total: g(7.79), Allocated: g(5.93), Free: m(15.12), Reserved: g(6.05)}, []Cause{Fragmentation}},
	{"1.10", "RuntimeError: CUDA out of memory. Tried to allocate 36.00 MiB (GPU 0; 7.93 GiB total capacity; 130.35 MiB already allocated; 47.06 MiB free; 188.00 MiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
		Failure{Kind: Device, GPU: 0, Tried: m(36), Total: g(7.93), Allocated: m(130.35), Free: m(47.06), Reserved: m(188)}, []Cause{Fragmentation}},
	{"1.13: allowed", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.90 GiB total capacity; 6.00 GiB already allocated; 8.91 GiB free; 7.95 GiB allowed; 6.01 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
		Failure{Kind: Device, GPU: 0, Tried: g(2), Total: g(15.9), Allocated: g(6), Free: g(8.91), Allowed: g(7.95), Reserved: g(6.01)}, []Cause{Limit}},
	{"1.12: other users", "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 23.69 GiB total capacity; 3.00 GiB already allocated; 300.00 MiB free; 3.05 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
		Failure{Kind: Device, GPU: 0, Tried: g(1), Total: g(23.69), Allocated: g(3), Free: m(300), Reserved: g(3.05)}, []Cause{OtherProcess}},
	{"2.0: wrapped", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 23.65 GiB\ntotal capacity; 21.92 GiB already allocated; 25.06 MiB free; 22.80 GiB reserved in total by PyTorch) If\nreserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See\ndocumentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF\n",
		Failure{Kind: Device, GPU: 0, Tried: g(1.5), Total: g(23.65), Allocated: g(21.92), Free: m(25.06), Reserved: g(22.8)}, []Cause{Size}},
	{"2.1: capacty, max_split_size_mb", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.37 GiB. GPU 0 has a total capacty of 79.11 GiB of which 2.93 GiB is free. Including non-PyTorch memory, this process has 76.17 GiB memory in use. Of the allocated memory 68.61 GiB is allocated by PyTorch, and 5.63 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
		Failure{Kind: Device, GPU: 0, Tried: g(6.37), Total: g(79.11), Free: g(2.93), InUse: g(76.17), Allocated: g(68.61), Reserved: g(68.61) + g(5.63)}, []Cause{Size}},
	{"2.1: process and this process", "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacty of 23.69 GiB of which 7.11 GiB is free. Process 2006998 has 256.00 MiB memory in use. Including non-PyTorch memory, this process has 16.31 GiB memory in use. Of the allocated memory 16.01 GiB is allocated by PyTorch, and 7.47 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.",
		Failure{Kind: Device, GPU: 0, Tried: g(8), Total: g(23.69), Free: g(7.11), InUse: g(16.31), Processes: []Process{{2006998, m(256)}}, Allocated: g(16.01), Reserved: g(16.01) + m(7.47)}, []Cause{Size}},
	{"2.2: no process", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 4.00 GiB of which 2.35 GiB is free. Of the allocated memory 825.15 MiB is allocated by PyTorch, and 24.85 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation. See documentation for Memory Management",
		Failure{Kind: Device, GPU: 0, Tried: m(20), Total: g(4), Free: g(2.35), Allocated: m(825.15), Reserved: m(825.15) + m(24.85)}, []Cause{Fragmentation}},
	{"2.6: full, of a small request", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 14.56 GiB of which 1024.00 KiB is free. Of the allocated memory 14.39 GiB is allocated by PyTorch, and 41.57 MiB is reserved by PyTorch but unallocated.",
		Failure{Kind: Device, GPU: 0, Tried: m(2), Total: g(14.56), Free: m(1), Allocated: g(14.39), Reserved: g(14.39) + m(41.57)}, []Cause{Size}},
	{"2.2: 0 bytes", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 90.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 0 bytes is free. Of the allocated memory 7.13 GiB is allocated by PyTorch, and 27.09 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)",
		Failure{Kind: Device, GPU: 0, Tried: m(90), Total: g(8), Free: 0, Allocated: g(7.13), Reserved: g(7.13) + m(27.09)}, []Cause{Size}},
	{"2.4: fragmented", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.15 GiB. GPU 0 has a total capacity of 39.56 GiB of which 2.80 GiB is free. Including non-PyTorch memory, this process has 36.61 GiB memory in use. Of the allocated memory 31.66 GiB is allocated by PyTorch, and 4.11 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)",
		Failure{Kind: Device, GPU: 0, Tried: g(3.15), Total: g(39.56), Free: g(2.8), InUse: g(36.61), Allocated: g(31.66), Reserved: g(31.66) + g(4.11)}, []Cause{Fragmentation}},
	{"2.5: rank, own process by another number", "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 158.00 MiB. GPU 3 has a total capacity of 23.69 GiB of which 115.69 MiB is free. Process 21422 has 23.57 GiB memory in use. Of the allocated memory 22.14 GiB is allocated by PyTorch, and 90.35 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)",
		Failure{Kind: Device, GPU: 3, Rank: 3, Tried: m(158), Total: g(23.69), Free: m(115.69), InUse: g(23.57), Allocated: g(22.14), Reserved: g(22.14) + m(90.35)}, []Cause{Size}},
	{"2.6: private pools", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 248.00 MiB. GPU 0 has a total capacity of 22.28 GiB of which 33.38 MiB is free. Process 6314 has 22.23 GiB memory in use. Of the allocated memory 20.60 GiB is allocated by PyTorch, with 199.88 MiB allocated in private pools (e.g., CUDA Graphs), and 171.43 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)",
		Failure{Kind: Device, GPU: 0, Tried: m(248), Total: g(22.28), Free: m(33.38), InUse: g(22.23), Allocated: g(20.6), PrivatePools: m(199.88), Reserved: g(20.6) + m(171.43)}, []Cause{Size}},
	{"2.6: three processes", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 64.00 MiB is free. Process 2086283 has 419.48 MiB memory in use. Including non-PyTorch memory, this process has 8.04 GiB memory in use. Process 2797307 has 14.85 GiB memory in use. Of the allocated memory 7.63 GiB is allocated by PyTorch, and 40.11 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
		Failure{Kind: Device, GPU: 0, Tried: m(86), Total: g(23.64), Free: m(64), InUse: g(8.04), Processes: []Process{{2086283, m(419.48)}, {2797307, g(14.85)}}, Allocated: g(7.63), Reserved: g(7.63) + m(40.11)}, []Cause{OtherProcess}},
	{"2.6: one tensor", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 124.68 GiB. GPU 0 has a total capacity of 95.22 GiB of which 51.23 GiB is free. Process 608946 has 14.91 GiB memory in use. Process 734147 has 29.07 GiB memory in use. Of the allocated memory 25.50 GiB is allocated by PyTorch, and 3.14 GiB is reserved by PyTorch but unallocated.",
		Failure{Kind: Device, GPU: 0, Tried: g(124.68), Total: g(95.22), Free: g(51.23), InUse: g(29.07), Processes: []Process{{608946, g(14.91)}}, Allocated: g(25.5), Reserved: g(25.5) + g(3.14)}, []Cause{OneTensor}},
	{"2.6: allowed", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.49 GiB of which 30.00 GiB is free. Including non-PyTorch memory, this process has 9.49 GiB memory in use. 10.00 GiB allowed; Of the allocated memory 8.90 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.",
		Failure{Kind: Device, GPU: 0, Tried: g(2), Total: g(39.49), Free: g(30), InUse: g(9.49), Allowed: g(10), Allocated: g(8.9), Reserved: g(8.9) + m(100)}, []Cause{Limit}},
	{"2.9: PYTORCH_ALLOC_CONF, much beside PyTorch", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 300.00 MiB is free. Including non-PyTorch memory, this process has 78.88 GiB memory in use. Of the allocated memory 70.01 GiB is allocated by PyTorch, and 210.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#environment-variables)",
		Failure{Kind: Device, GPU: 0, Tried: m(512), Total: g(79.18), Free: m(300), InUse: g(78.88), Allocated: g(70.01), Reserved: g(70.01) + m(210)}, []Cause{NotPyTorch}},
	{"a leak", "step 100 loss 2.3\nstep 1180 loss 1.9\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.69 GiB of which 5.69 MiB is free. Including non-PyTorch memory, this process has 23.68 GiB memory in use. Of the allocated memory 23.14 GiB is allocated by PyTorch, and 10.35 MiB is reserved by PyTorch but unallocated.",
		Failure{Kind: Device, Line: 3, GPU: 0, Tried: m(20), Total: g(23.69), Free: m(5.69), InUse: g(23.68), Allocated: g(23.14), Reserved: g(23.14) + m(10.35), Progress: 1180}, []Cause{Growth}},
	{"a progress bar", " 37%|███▋      | 1200/3200 [12:01<20:02,  1.66it/s]\r\nTraceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity; 13.93 GiB already allocated; 400.00 MiB free; 14.05 GiB reserved in total by PyTorch)",
		Failure{Kind: Device, Line: 4, GPU: 0, Tried: g(2), Total: g(15.78), Allocated: g(13.93), Free: m(400), Reserved: g(14.05), Progress: 1200}, []Cause{Growth}},
	{"HIP", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.16 GiB. GPU 2 has a total capacity of 63.98 GiB of which 102.00 MiB is free. Of the allocated memory 62.60 GiB is allocated by PyTorch, and 353.72 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_HIP_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
		Failure{Kind: Device, GPU: 2, Tried: g(1.16), Total: g(63.98), Free: m(102), Allocated: g(62.6), Reserved: g(62.6) + m(353.72)}, []Cause{Size}},
	{"XPU", "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 15.56 GiB. Of the allocated memory 14.29 GiB is allocated by PyTorch, and 103.77 MiB is reserved by PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory.",
		Failure{Kind: Device, GPU: -1, Tried: m(896), Allocated: g(14.29), Reserved: g(14.29) + m(103.77)}, []Cause{Size}},
	{"MPS", "RuntimeError: MPS backend out of memory (MPS allocated: 17.50 GB, other allocations: 576.00 KB, max allowed: 18.13 GB). Tried to allocate 768.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).",
		Failure{Kind: MPS, GPU: -1, Tried: m(768), Allocated: g(17.5), Allowed: g(18.13)}, []Cause{Size}},
	{"cudaMallocAsync", "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 6.52 GiB\nRequested               : 1.00 GiB\nDevice limit            : 7.79 GiB\nFree (according to CUDA): 18.06 MiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB\n",
		Failure{Kind: Async, GPU: 0, Tried: g(1), Total: g(7.79), Free: m(18.06), Allocated: g(6.52)}, []Cause{Size}},
	{"cudaMallocAsync, cut at the device's number", "torch.OutOfMemoryError: Allocation on device \n\nGot an OOM, unloading all loaded models.", Failure{Kind: Async, GPU: -1}, []Cause{Size}},
	{"cudaMallocAsync in a report of ComfyUI", "- **Exception Type:** torch.OutOfMemoryError\n- **Exception Message:** Allocation on device \n## Stack Trace\n", Failure{Kind: Async, Line: 2, GPU: -1}, []Cause{Size}},
	{"page-locked memory", "    x = torch.empty(1 << 46, dtype=torch.uint8, pin_memory=True)\nRuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call", Failure{Kind: Pinned, Line: 2, GPU: -1}, []Cause{HostMemory}},
	{"2.6: one tensor beyond the fraction", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 10.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 80.00 GiB is free. 4.00 GiB allowed; Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
		Failure{Kind: Device, GPU: 0, Tried: g(10), Total: g(80), Free: g(80), Allowed: g(4)}, []Cause{Limit}},
	{"the driver", "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.", Failure{Kind: Driver, GPU: -1}, []Cause{Library}},
	{"THC", "THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=50 error=2 : out of memory", Failure{Kind: Driver, GPU: -1}, []Cause{Library}},
	{"cuBLAS", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", Failure{Kind: CuBLAS, GPU: -1}, []Cause{Library}},
	{"cuDNN", "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution", Failure{Kind: CuDNN, GPU: -1}, []Cause{Library}},
	{"cuDNN: engine", "RuntimeError: GET was unable to find an engine to execute this computation", Failure{Kind: CuDNN, GPU: -1}, []Cause{Library}},
	{"NCCL", "[rank1]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2251, unhandled cuda error. Last error:\n[rank1]: Cuda failure 2 'out of memory'", Failure{Kind: NCCL, Line: 2, Rank: 1, GPU: -1}, []Cause{Library}},
	{"the CPU", "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 17179869184 bytes. Error code 12 (Cannot allocate memory)", Failure{Kind: CPU, GPU: -1, Tried: 16 * gib}, []Cause{HostMemory}},
	{"the CPU, Windows", "RuntimeError: [enforce fail at C:\\cb\\pytorch\\c10\\core\\impl\\alloc_cpu.cpp:81] data. DefaultCPUAllocator: not enough memory: you tried to allocate 1073741824 bytes.", Failure{Kind: CPU, GPU: -1, Tried: gib}, []Cause{HostMemory}},
	{"/dev/shm", "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\nRuntimeError: DataLoader worker (pid 2331) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.", Failure{Kind: Shared, GPU: -1}, []Cause{SharedMemory}},
	{"a worker that was killed", "RuntimeError: DataLoader worker (pid 411) is killed by signal: Killed.", Failure{Kind: Killed, GPU: -1}, []Cause{HostMemory}},
	{"the kernel", "[1234.5] Out of memory: Killed process 411 (python) total-vm:91234567kB, anon-rss:61234567kB, file-rss:0kB", Failure{Kind: Killed, GPU: -1}, []Cause{HostMemory}},
	{"Slurm", "slurmstepd: error: Detected 1 oom_kill event in StepId=1234.0. Some of the step tasks have been OOM Killed.", Failure{Kind: Killed, GPU: -1}, []Cause{HostMemory}},
}

func TestMessages(t *testing.T) {
	for _, c := range messages {
		t.Run(c.name, func(t *testing.T) {
			got := Parse("epoch 1\n" + c.log + "\n")
			if len(got) != 1 {
				t.Fatalf("%d failures, want 1: %+v", len(got), got)
			}
			f, w := got[0], c.want
			if w.Line == 0 {
				w.Line = 1
			}
			if f.Line != w.Line+1 || f.Kind != w.Kind || f.GPU != w.GPU || (f.Rank >= 0 || w.Rank > 0) && f.Rank != w.Rank || f.Progress != max(w.Progress, 0) {
				t.Errorf("line %d, kind %s, gpu %d, rank %d, progress %d; want %d, %s, %d, %d, %d", f.Line, f.Kind, f.GPU, f.Rank, f.Progress, w.Line+1, w.Kind, w.GPU, w.Rank, w.Progress)
			}
			sizes := func(f *Failure) [8]tensor.Bytes {
				s := [8]tensor.Bytes{f.Tried, f.Total, f.Free, f.Allowed, f.InUse, f.Allocated, f.PrivatePools, f.Reserved}
				for i := range s {
					s[i] = max(s[i], 0)
				}
				return s
			}
			if a, b := sizes(f), sizes(&w); a != b {
				t.Errorf("tried, total, free, allowed, in use, allocated, pools, reserved:\n%v, want\n%v", a, b)
			}
			if len(f.Processes) != len(w.Processes) {
				t.Errorf("processes %v, want %v", f.Processes, w.Processes)
			}
			for i := range min(len(f.Processes), len(w.Processes)) {
				if f.Processes[i] != w.Processes[i] {
					t.Errorf("process %v, want %v", f.Processes[i], w.Processes[i])
				}
			}
			d := Diagnose(f)
			if len(d) == 0 || d[0].Cause != c.causes[0] || d[0].Why == "" || len(d[0].Fixes) == 0 {
				t.Errorf("diagnosis %+v, want %v first", d, c.causes)
			}
		})
	}
}

// Two ranks fail with one message each; one of them is printed twice.
func TestSeveral(t *testing.T) {
	line := func(rank string) string {
		return "[" + rank + "]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 158.00 MiB. GPU 0 has a total capacity of 23.69 GiB of which 115.69 MiB is free.\n"
	}
	got := Parse(line("rank0") + "[rank0]: During handling of the above exception, another exception occurred:\n" + line("rank0") + line("rank1"))
	if len(got) != 2 || got[0].Rank != 0 || got[1].Rank != 1 || got[0].Total != g(23.69) {
		t.Errorf("%+v", got)
	}
	if got := Parse("all went well\nstep 1\n"); len(got) != 0 {
		t.Errorf("%+v", got[0])
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range messages {
		f.Add(c.log)
	}
	files, _ := filepath.Glob(needs.File(f, "oom", "*.log"))
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, log string) {
		for _, x := range Parse(log) {
			if x.Line < 1 || x.Line > strings.Count(log, "\n")+1 || len(x.Text) > 2*reach+4000 {
				t.Errorf("line %d, %d bytes", x.Line, len(x.Text))
			}
			if len(Diagnose(x)) == 0 {
				t.Error("no cause")
			}
		}
	})
}

// Logs of real runs of PyTorch 2.6: each failed for the reason in its name.
func TestLogs(t *testing.T) {
	for name, want := range map[string]Cause{"size": Size, "one": OneTensor, "limit": Limit, "frag": Fragmentation, "leak": Growth,
		"expandable": Size, "expandable-one": OneTensor, "fraction-one": Limit} {
		b, err := os.ReadFile(needs.File(t, "oom", name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		got := Parse(string(b))
		if len(got) != 1 || got[0].Total != 80*gib || got[0].Tried <= 0 || got[0].Reserved < 0 {
			t.Fatalf("%s: %+v", name, got)
		}
		if d := Diagnose(got[0]); d[0].Cause != want {
			t.Errorf("%s: %+v, want %s", name, d, want)
		}
	}
}

// Logs of real runs whose messages have no figures.
func TestLogsWithoutFigures(t *testing.T) {
	for name, want := range map[string]struct {
		kind  Kind
		cause Cause
	}{"async": {Async, Size}, "pinned": {Pinned, HostMemory}} {
		b, err := os.ReadFile(needs.File(t, "oom", name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		got := Parse(string(b))
		if len(got) != 1 || got[0].Kind != want.kind || got[0].Tried >= 0 || Diagnose(got[0])[0].Cause != want.cause {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The name of the allocator's variable that is advised is the one that every
// release reads: 2.9.1, whose messages have the other, ignores that.
func TestFixesNameWhatIsRead(t *testing.T) {
	got := fixes[Fragmentation][0]
	if want := "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (PYTORCH_ALLOC_CONF, the name in newer messages, is read from PyTorch 2.10 on)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
