package report

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"

	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/tensor"
)

// requestHeadroom is the share that requests have on top of what is planned, as
// schedulers kill what takes more than it asked for.
const requestHeadroom = 0.05

// containerShm is what /dev/shm has in a container that asks for nothing, in
// MiB.
const containerShm = 64

// request is what a job asks a scheduler for, in whole MiB, rounded up.
type request struct {
	gpus int64 // of one machine
	gpu  int64 // of each: reserved memory and the context at its largest
	all  bool  // gpu is the whole device: the job fits, but not with headroom
	host int64 // 0: not modelled
	shm  int64 // of host, in /dev/shm; 0: no more than every container has
}

// requestOf takes from a report what a job needs. Other processes on the device
// are not the job's.
func requestOf(r *Report) request {
	u := &r.Uncertainty
	q := request{gpus: max(r.Train.Ranks, 1)}
	q.gpu = mib(max(r.Peak.ReservedBytes, u.ReservedExpectedBytes) + max(r.Device.ContextBytes, u.ContextHighBytes) + u.NCCLHighBytes)
	if whole := int64(r.Device.TotalBytes / tensor.MiB); r.Verdict.Fits && q.gpu > whole {
		q.gpu, q.all = whole, true
	}
	if h := r.Host; h != nil {
		q.host = mib(h.RequestBytes)
		if n := mib(tensor.Bytes(q.gpus) * h.SharedMemoryBytes); n > containerShm {
			q.shm = n
		}
	}
	return q
}

// mib adds the headroom and rounds up.
func mib(b tensor.Bytes) int64 {
	return int64(math.Ceil(float64(b) * (1 + requestHeadroom) / float64(tensor.MiB)))
}

// eachGPU says what part of a batch each process has, if there are several.
func eachGPU(t *Train) string {
	switch {
	case t.Microbatches > 0:
		return t.perRank()
	case t.Ranks > 1:
		return " on each GPU"
	}
	return ""
}

// comments say where the figures come from.
func (q *request) comments(r *Report) []string {
	nccl := ""
	if n := r.Uncertainty.NCCLHighBytes; n > 0 {
		nccl = fmt.Sprintf(", up to %v for NCCL", n)
	}
	out := []string{
		fmt.Sprintf("memplan: %s (%s%s), planned on %s: %s", r.Model.Name, batch(r.Train.BatchSize, r.Train.OneSequence), eachGPU(&r.Train), r.Device.DisplayName, r.Verdict.Result),
		fmt.Sprintf("GPU memory: %v reserved and a CUDA context of up to %v%s, with %.0f %% headroom", max(r.Peak.ReservedBytes, r.Uncertainty.ReservedExpectedBytes),
			max(r.Device.ContextBytes, r.Uncertainty.ContextHighBytes), nccl, 100*requestHeadroom),
	}
	if q.all {
		out[1] += "; that is more than the GPU has, so all of it"
	}
	if high, low := r.Uncertainty.ReservedHighBytes, max(r.Peak.ReservedBytes, r.Uncertainty.ReservedExpectedBytes); high > low {
		out = append(out, fmt.Sprintf("cuDNN may pick plans with which %v are reserved, if there is room", high))
	}
	if !r.Verdict.Fits {
		out = append(out, "OUT OF MEMORY: "+NotFitting(r))
	}
	if h := r.Host; h != nil {
		each := ""
		if q.gpus > 1 {
			each = fmt.Sprintf(" for %d processes on one machine", q.gpus)
		}
		out = append(out, fmt.Sprintf("host memory: %v at most%s, while %s, with %.0f %% headroom", h.RequestBytes, each, HostPhases[h.Phase], 100*requestHeadroom))
		if h.Loading == "sharded" {
			out = append(out, fmt.Sprintf("assumed: one process has the whole model and sends the others their parts (accelerate's cpu_ram_efficient_loading); if each builds it, all need %v", h.AllHighBytes))
		}
	} else {
		out = append(out, "host memory is not modelled: ask for it yourself")
	}
	for i, s := range out {
		out[i] = "# " + printable.Text(s)
	}
	return out
}

// NotFitting says that the plan is not to be run as it is.
func NotFitting(r *Report) string {
	return fmt.Sprintf("the job does not fit on %s; see memplan estimate", r.Device.DisplayName)
}

// notName is what job names may not have.
var notName = regexp.MustCompile(`[^a-z0-9]+`)

// jobName makes a name of a job that every scheduler takes (a label of RFC
// 1123).
func jobName(r *Report) string {
	s := strings.Trim(notName.ReplaceAllString(strings.ToLower(r.Model.Name), "-"), "-")
	s = strings.Trim(s[:min(len(s), 63)], "-")
	if s == "" {
		return "memplan"
	}
	return s
}

var _ = Formats.Add(Format{
	Name: "slurm", Doc: "the #SBATCH lines that ask for what the job needs", Rank: 2, Write: writeSlurm, Request: true,
})

// writeSlurm prints the head of a batch script. How a site names its GPUs is
// its own: a line that is no directive yet says what to ask for.
func writeSlurm(w io.Writer, r *Report, _ Options) error {
	q := requestOf(r)
	out := bufio.NewWriter(w)
	p := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	p("#!/bin/sh\n%s", strings.Join(q.comments(r), "\n"))
	p("#SBATCH --job-name=%s", jobName(r))
	p("#SBATCH --gres=gpu:%d", q.gpus)
	p("# a GPU of %d MiB or more; by a feature, or by gpu:TYPE:%d, as your site names them:", q.gpu, q.gpus)
	p("##SBATCH --constraint=FEATURE")
	if q.host > 0 {
		p("#SBATCH --mem=%dM", q.host)
	}
	if q.shm > 0 {
		p("# this includes %d MiB in /dev/shm: in a container, mount it with as much", q.shm)
	}
	return out.Flush()
}

var _ = Formats.Add(Format{
	Name: "kubernetes", Doc: "the part of a Pod that asks for what the job needs", Rank: 3, Write: writeKubernetes, Request: true,
})

// writeKubernetes prints the part of a Pod that asks for resources. The label
// of nodes is that of NVIDIA's GPU feature discovery, in MiB.
func writeKubernetes(w io.Writer, r *Report, _ Options) error {
	return writePod(w, r, "GPU feature discovery labels nodes with nvidia.com/gpu.memory, in MiB",
		func(p func(string, ...any), q request) { p("          nvidia.com/gpu: %d", q.gpus) },
		func(p func(string, ...any), q request) {
			p("  affinity:")
			p("    nodeAffinity:")
			p("      requiredDuringSchedulingIgnoredDuringExecution:")
			p("        nodeSelectorTerms:")
			p("          - matchExpressions:")
			p(`              - {key: nvidia.com/gpu.memory, operator: Gt, values: ["%d"]}`, q.gpu-1)
		})
}

var _ = Formats.Add(Format{
	Name: "hami", Doc: "the same for a part of a GPU, as HAMi shares them", Rank: 4, Write: writeHAMi, Request: true,
})

// writeHAMi prints the same for clusters where HAMi shares GPUs: the job gets a
// part of one, and no more of its memory than it asks for (nvidia.com/gpumem, in
// MiB).
func writeHAMi(w io.Writer, r *Report, _ Options) error {
	return writePod(w, r, "HAMi shares GPUs; gpumem is in MiB, of each GPU",
		func(p func(string, ...any), q request) {
			p("          nvidia.com/gpu: %d", q.gpus)
			p("          nvidia.com/gpumem: %d", q.gpu)
		}, nil)
}

// writePod prints what the two have in common: limits says what of GPUs is
// asked for, place where the pod may run.
func writePod(w io.Writer, r *Report, note string, limits, place func(p func(string, ...any), q request)) error {
	q := requestOf(r)
	out := bufio.NewWriter(w)
	p := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	p("%s\n# %s\n# a part of a Pod: add image, command and the rest", strings.Join(q.comments(r), "\n"), note)
	p("metadata:\n  name: %s", jobName(r))
	p("spec:\n  containers:\n    - name: train\n      resources:")
	if q.host > 0 {
		p("        requests:\n          memory: %dMi", q.host)
	}
	p("        limits:")
	limits(p, q)
	if q.host > 0 {
		p("          memory: %dMi", q.host)
	}
	if q.shm > 0 {
		p("      volumeMounts:\n        - {name: shm, mountPath: /dev/shm}")
	}
	if place != nil {
		place(p, q)
	}
	if q.shm > 0 { // what is in it counts as the container's memory
		p("  volumes:\n    - name: shm\n      emptyDir: {medium: Memory, sizeLimit: %dMi}", q.shm)
	}
	return out.Flush()
}
