package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/oom"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// explained is one message of a log in JSON.
type explained struct {
	*oom.Failure
	Causes      []oom.Finding `json:"causes"`
	Divergences []string      `json:"divergences,omitempty"` // from the plan
}

// explainLog explains the messages of a log; plan is nil without a spec.
func explainLog(c *cobra.Command, s *Streams, name, log string, src *source, specPath, format string) error {
	failures := oom.Parse(log)
	if len(failures) == 0 {
		return noMessage(name, log)
	}
	var plan *oom.Plan
	if src != nil {
		j, err := src.job(c, s, []string{specPath})
		if err != nil {
			return err
		}
		o, err := estimate.Run(j)
		if err != nil {
			return err
		}
		plan = planOf(o)
	}
	var all []explained
	for _, f := range failures {
		x := explained{Failure: f, Causes: oom.Diagnose(f)}
		if plan != nil {
			x.Divergences = oom.Compare(f, plan)
		}
		all = append(all, x)
	}
	if format == "json" {
		return report.JSON(s.Out, map[string]any{"memplan_explanation": 1, "failures": all})
	}
	return s.people(func(w io.Writer) error {
		for i, x := range all {
			if i > 0 {
				fmt.Fprintln(w)
			}
			writeExplained(w, name, &x)
		}
		if plan == nil && failures[0].Tried >= 0 {
			if name == "-" {
				name = "LOG"
			}
			fmt.Fprintf(w, "\nmemplan explain %s --spec SPEC compares it with the plan of the job\n", printable.File(name))
		}
		return nil
	})
}

// noMessage says what a file without a message may be.
func noMessage(name, log string) error {
	switch {
	case name == "-":
		name = "standard input"
	case strings.Contains(log, "memplan:") && strings.Contains(log, "model") && slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name)):
		return usagef("%s is a spec, not a log; memplan estimate %s tells whether it fits", name, printable.File(name))
	}
	return fmt.Errorf("%s: no out-of-memory message of PyTorch, CUDA or the operating system found; name the file that holds what the job printed", name)
}

// planOf takes from an outcome what a message can be compared with.
func planOf(o *estimate.Outcome) *oom.Plan {
	r := o.Report()
	p := &oom.Plan{
		Device: r.Device.Name, Total: r.Device.TotalBytes, Context: r.Device.ContextBytes, PeakAllocated: r.Peak.AllocatedBytes,
		PeakReserved: r.Peak.ReservedBytes, Fits: r.Verdict.Fits, NotModelled: r.NotModelled, Operators: operatorsOf,
		Microbatches: o.Job.Spec.Train.GradAccumulation.V,
	}
	if x := r.Verdict.OOM; x != nil {
		p.Held = o.OnGPU.OOMs[0].Err.Allocated
		p.Dies = oom.Request{Bytes: x.TriedBytes, Step: x.Step, Phase: x.Phase, Op: x.Op, Layer: x.Layer}
	}
	seen := map[oom.Request]bool{}
	tr := o.Played.Trace
	for i := range tr.Events {
		e := &tr.Events[i]
		if e.Kind != trace.Alloc {
			continue
		}
		q := oom.Request{Bytes: o.Job.Machine.Conf.Shown(e.Bytes), Phase: e.Phase.String(), Op: tr.Ops[e.Op], Layer: tr.Layers[e.Layer]}
		if !seen[q] {
			seen[q] = true
			q.Step = int(e.Step)
			p.Requests = append(p.Requests, q)
		}
	}
	return p
}

// partsOf are the operators in which functions allocate that are made of others.
var partsOf = map[string][]*op.Op{
	"linear": {aten.Addmm, aten.Mm, aten.Bmm}, "matmul": {aten.Mm, aten.Bmm, aten.Addmm}, "@": {aten.Mm, aten.Bmm, aten.Addmm},
	"conv1d": {aten.Conv}, "conv2d": {aten.Conv}, "conv3d": {aten.Conv},
	"softmax": {aten.InnerSoftmax}, "log_softmax": {aten.InnerLogSoftmax}, "dropout": {aten.NativeDropout}, "embedding": {aten.Embedding},
	"layer_norm": {aten.NativeLayerNorm}, "batch_norm": {aten.NativeBatchNorm, aten.CudnnBatchNorm},
	"cross_entropy": {aten.InnerLogSoftmax, aten.NLLLossForward, aten.NLLLoss2dForward}, "cross_entropy_loss": {aten.InnerLogSoftmax, aten.NLLLossForward, aten.NLLLoss2dForward},
	"scaled_dot_product_attention": {aten.FlashAttention, aten.EfficientAttention, aten.InnerSoftmax, aten.Bmm},
	"+":                            {aten.Add, aten.AddInPlace}, "-": {aten.Sub, aten.SubInPlace}, "*": {aten.Mul, aten.MulInPlace}, "/": {aten.Div, aten.DivInPlace},
}

// operatorsOf are the operators that may run where a line of Python calls a function;
// nil if memplan does not know.
func operatorsOf(call string) []string {
	var names []string
	for _, r := range partsOf[call] {
		names = append(names, r.Name)
	}
	if names != nil {
		return names
	}
	if s := aten.Lookup(call); s != nil && !s.Op.Composite {
		return []string{s.Op.Name}
	}
	if r := aten.Named(call); r != nil && !r.Composite {
		return []string{call}
	}
	return nil
}

// writeExplained prints one message and what it means.
func writeExplained(w io.Writer, name string, x *explained) {
	f := x.Failure
	where := fmt.Sprintf("%s:%d", name, f.Line)
	if name == "-" {
		where = fmt.Sprintf("line %d", f.Line)
	}
	printable.Fprintf(w, "%s: ", where)
	if f.Rank >= 0 {
		printable.Fprintf(w, "rank %d, ", f.Rank)
	}
	if f.GPU >= 0 {
		printable.Fprintf(w, "GPU %d, ", f.GPU)
	}
	printable.Fprintf(w, "%s\n", x.Causes[0].Cause)
	said := false
	size := func(what string, b tensor.Bytes) {
		if b >= 0 {
			if !said {
				fmt.Fprintln(w)
			}
			said = true
			printable.Fprintf(w, "  %-24s %10v\n", what, b)
		}
	}
	size("asked for", f.Tried)
	size("free on the device", f.Free)
	size("device", f.Total)
	size("allowed (fraction)", f.Allowed)
	size("in tensors (allocated)", f.Allocated)
	size("of them in CUDA graphs", f.PrivatePools)
	size("reserved by PyTorch", f.Reserved)
	size("this process, all", f.InUse)
	for _, p := range f.Processes {
		size(fmt.Sprintf("process %d", p.PID), p.Bytes)
	}
	if at := f.Place; at != nil && at.String() != "" {
		printable.Fprintf(w, "\n  the traceback ends in line %d: %s\n", at.Line, at)
	}
	for _, c := range x.Causes {
		printable.Fprintf(w, "\n%s: %s\n", c.Cause, c.Why)
		for _, fix := range c.Fixes {
			printable.Fprintf(w, "  - %s\n", fix)
		}
	}
	if len(x.Divergences) > 0 {
		printable.Fprintf(w, "\nCompared with the plan\n")
		for _, d := range x.Divergences {
			printable.Fprintf(w, "  - %s\n", d)
		}
	}
}
