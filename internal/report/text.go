package report

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/tensor"
)

// shareColors are those of the bars of categories; others have none.
var shareColors = map[string]string{
	"parameters": "\x1b[34m", "gradients": "\x1b[33m", "optimizer state": "\x1b[32m", "activations": cyan, "inputs": "\x1b[35m",
	"temporaries": "\x1b[31m", "workspace": "\x1b[93m",
}

var _ = Formats.Add(Format{
	Name: "text", Doc: "for people: the verdict, the three numbers, what the peak is made of", Rank: 0, Write: writeText,
})

// writeText prints the report for people: the verdict first.
func writeText(w io.Writer, r *Report, o Options) error {
	out := bufio.NewWriter(w)
	t := &text{Writer: out, r: r, o: o}
	t.verdict()
	t.changes()
	t.job()
	t.spark()
	if err := t.ranks(); err != nil {
		return err
	}
	if err := t.lengths(); err != nil {
		return err
	}
	t.numbers()
	if err := t.breakdown(); err != nil {
		return err
	}
	if err := t.layers(); err != nil {
		return err
	}
	if err := t.steps(); err != nil {
		return err
	}
	t.allocator()
	t.curve()
	t.host()
	t.notes()
	return out.Flush()
}

type text struct {
	*bufio.Writer
	r *Report
	o Options
}

func (t *text) printf(format string, args ...any) { printable.Fprintf(t.Writer, format, args...) }

// verdict is one line that answers the question, and one with the reason.
func (t *text) verdict() {
	r := t.r
	t.printf("%s  %s\n", t.word(r.Verdict.Result), r.Title())
	t.printf("%s\n", Settings(r))
	for line := range strings.SplitSeq(r.Verdict.Reason, "\n") {
		t.printf("%s\n", line)
	}
	t.advice()
	if h := r.Host; h != nil && h.Result != "" {
		t.printf("%s  CPU: %s\n", t.word(h.Result), h.Reason)
	}
	for _, w := range r.Warnings {
		t.printf("! %s\n", w)
	}
	t.printf("\n")
}

// job says what the model and the device are.
func (t *text) job() {
	r := t.r
	t.printf("  model      %s parameters", Count(r.Model.Parameters))
	if n := r.Model.TrainableParameters; n != r.Model.Parameters {
		t.printf(" (%s trainable)", Count(n))
	}
	t.printf(", %s", r.Train.Precision)
	if r.Train.Optimizer != "" {
		t.printf(", %s", r.Train.Optimizer)
	}
	for _, c := range r.Model.Configurations {
		t.printf("\n  config     %s", c)
	}
	t.printf("\n  device     %s: %v usable = %v total - %v CUDA context", r.Device.Name,
		r.Device.UsableBytes, r.Device.TotalBytes, r.Device.ContextBytes)
	if o := r.Device.OccupiedBytes; o > 0 {
		t.printf(" - %v of other processes", o)
	}
	t.printf("\n\n")
}

// Title names the job and the GPU.
func (r *Report) Title() string {
	what := batch(r.Train.BatchSize, r.Train.OneSequence)
	where := r.Device.DisplayName
	if n := r.Train.Ranks; n > 0 {
		what += r.Train.perRank()
		where = Plural(n, "GPU") + ": " + where
	}
	if r.Train.Mode != "train" {
		what += ", " + r.Train.Mode
	}
	return fmt.Sprintf("%s (%s) on %s", r.Model.Name, what, where)
}

// perRank says what part of a batch each process has.
func (t *Train) perRank() string {
	if t.Microbatches > 0 {
		return fmt.Sprintf(" in %d microbatches, rank %d", t.Microbatches, *t.Rank)
	}
	if t.Rank != nil {
		return fmt.Sprintf(" on each, rank %d", *t.Rank)
	}
	return " on each"
}

// batch is a batch size as verdicts print it.
func batch(size int64, oneSequence bool) string {
	if size == 0 {
		return "as recorded"
	}
	s := fmt.Sprintf("batch %d", size)
	if oneSequence {
		s += " in one sequence"
	}
	return s
}

// Settings says in a line what of a job decides its figures, and what of that
// were not given.
func Settings(r *Report) string {
	var parts []string
	for _, p := range r.Deciding {
		parts = append(parts, fmt.Sprintf("%s %v", p, r.Params[p]))
	}
	line := strings.Join(append(parts, r.Train.Precision, release(&r.Train)), ", ")
	if len(r.Assumed) == 0 {
		return line
	}
	var keys []string
	for _, k := range r.Assumed {
		word, ok := assumedWords[k]
		if !ok {
			word = strings.TrimPrefix(k, "params.")
		}
		keys = append(keys, word)
	}
	return line + "; assumed: " + strings.Join(keys, ", ")
}

// release is the PyTorch of a job, and what asks for it.
func release(t *Train) string {
	if t.TorchFrom == "" {
		return "PyTorch " + t.Torch
	}
	return "PyTorch " + t.Torch + " (" + t.TorchFrom + ")"
}

// assumedWords are how the text names keys that were assumed.
var assumedWords = map[string]string{
	"train.batch_size": "batch size", "train.precision": "precision", "train.optimizer": "optimizer", "torch": "PyTorch", "device.gpu": "GPU",
}

// word is a verdict, in colour if that is wanted.
func (t *text) word(result string) printable.Verbatim { return t.o.Color.Verdict(result, result) }

// numbers are the three that are never one.
func (t *text) numbers() {
	p := &t.r.Peak
	title, shown := "Peak memory", "what nvidia-smi shows: reserved + CUDA context"
	if t.r.Verdict.Result != Fits {
		title, shown = "Peak memory if the GPU had no limit", "reserved + CUDA context"
	}
	t.printf("%s\n", t.bold(title))
	t.printf("  allocated  %10v   in tensors: %s\n", p.AllocatedBytes, Where(p.Step, p.Phase, p.Op, p.Layer))
	held := "held by PyTorch's caching allocator"
	if p.ReservedBareBytes != p.ReservedBytes {
		held += fmt.Sprintf("; %v without workspaces of cuDNN's convolutions", p.ReservedBareBytes)
	}
	t.printf("  reserved   %10v   %s\n", p.ReservedBytes, held)
	t.printf("  device     %10v   %s\n\n", p.DeviceBytes, shown)
}

// Where names the place of an event.
func Where(step int, phase, op, layer string) string {
	s := phase
	if step > 0 {
		s = fmt.Sprintf("step %d, %s", step, phase)
	}
	if op != "" {
		s += ", " + op
	}
	if layer != "" {
		s += " in " + layer
	}
	return s
}

func (t *text) breakdown() error {
	total := t.r.Peak.AllocatedBytes
	tab := &Table{Header: []string{"At the peak", "bytes", "size", "share"}, Numbers: []bool{false, true, true, true}}
	for _, s := range t.r.AtPeak.Shares() {
		if s.Bytes != 0 {
			tab.Rows = append(tab.Rows, []string{s.Name, fmt.Sprint(int64(s.Bytes)), s.Bytes.String(), percent(s.Bytes, total)})
		}
	}
	tab.Footer = []string{"allocated", fmt.Sprint(int64(total)), total.String(), percent(total, total)}
	err := t.bars(tab, total)
	t.printf("\n")
	return err
}

// bars prints the table with a bar for each share, where a terminal has room for bars.
func (t *text) bars(tab *Table, total tensor.Bytes) error {
	const least, most = 10, 40
	block := "█"
	if s := t.o.Spark; s == nil || s.ASCII {
		block = "#"
	}
	tab.Width, tab.Spare = t.o.Width, []int{1}
	room := min(min(t.o.Width, lineWidth)-tab.natural()-tableGap, most)
	if room < least || total == 0 {
		return t.table(tab)
	}
	var b bytes.Buffer
	if err := tab.Write(&b); err != nil {
		return err
	}
	const head = 2 // lines of the heading
	sizes := map[string]tensor.Bytes{}
	for _, s := range t.r.AtPeak.Shares() {
		sizes[s.Name] = s.Bytes
	}
	width, i := 0, 0
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		width = max(width, columns(line))
		if row := i - head; row >= 0 && row < len(tab.Rows) {
			name := tab.Rows[row][0]
			bar := strings.Repeat(block, int(float64(sizes[name])/float64(total)*float64(room)+0.5))
			line += strings.Repeat(" ", width-columns(line)+tableGap) + t.o.Color.paint(shareColors[name], bar)
		}
		t.printf("%s\n", printable.Verbatim(strings.TrimRight(line, " ")))
		i++
	}
	return nil
}

// width is how long lines of sentences are.
func (t *text) width() int {
	if t.o.Width == 0 {
		return lineWidth
	}
	return min(t.o.Width, lineWidth)
}

func (t *text) layers() error {
	n := min(t.o.Top, len(t.r.Layers))
	if n <= 0 {
		return nil
	}
	tab := &Table{Spare: []int{4, 1, 2}, Header: []string{"Largest layers", "kind", "count", "parameters", "gradients", "activations", "other", "total"},
		Numbers: []bool{false, false, true, true, true, true, true, true}}
	for _, l := range t.r.Layers[:n] {
		tab.Rows = append(tab.Rows, []string{layerName(l.Layer), l.Kind, fmt.Sprint(l.Count), size(l.ParametersBytes), size(l.GradientsBytes),
			size(l.ActivationsBytes), size(l.OtherBytes), size(l.TotalBytes)})
	}
	err := t.table(tab)
	if more := len(t.r.Layers) - n; more > 0 {
		t.printf("  and %d more (--top)\n", more)
	}
	t.printf("\n")
	return err
}

// layerName is a layer's path, or what stands for none: the loss, the optimizer,
// the batch.
func layerName(path string) string {
	if path == "" {
		return "(outside the model)"
	}
	return path
}

func (t *text) steps() error {
	tab := &Table{Header: []string{"Step", "peak allocated", "peak reserved", "end allocated", "end reserved"},
		Numbers: []bool{true, true, true, true, true}}
	const most = 10
	for i, s := range t.r.Steps {
		if i == most {
			break
		}
		tab.Rows = append(tab.Rows, []string{fmt.Sprint(s.Step), s.PeakAllocatedBytes.String(), s.PeakReservedBytes.String(),
			s.EndAllocatedBytes.String(), s.EndReservedBytes.String()})
	}
	err := t.table(tab)
	if more := len(t.r.Steps) - most; more > 0 {
		t.printf("  and %d more\n", more)
	}
	for i, s := range t.r.Steps {
		if i > 0 && s.Step > t.r.Steps[i-1].Step+1 {
			t.printf("  steps %d to %d are like those before them, and left out\n", t.r.Steps[i-1].Step+1, s.Step-1)
		}
	}
	for _, p := range t.r.Phases {
		if p.Phase == "eval" {
			t.printf("  evaluation peaks at %v allocated, %v reserved\n", p.PeakAllocatedBytes, p.PeakReservedBytes)
		}
	}
	switch n := t.r.Verdict.SteadyFromStep; {
	case n > 0 && t.r.Verdict.Leak != nil:
		t.printf("  every step from %d on does the same, and leaves more than it found\n\n", n)
	case n > 0:
		t.printf("  every step from %d on is the same\n\n", n)
	case len(t.r.Steps) < 3:
		t.printf("  too few steps to tell whether they repeat\n\n")
	default:
		t.printf("  the steps still differ from each other\n\n")
	}
	return err
}

func (t *text) allocator() {
	a := &t.r.Allocator
	t.printf("%s\n", t.bold("Allocator"))
	t.printf("  fragmentation  %v (%s): peak of reserved minus peak of allocated; %s\n",
		a.FragmentationBytes, percent(a.FragmentationBytes, t.r.Peak.ReservedBytes), Plural(a.Segments, "segment"))
	if a.NumAllocRetries > 0 {
		t.printf("  on the device  %s after giving cached memory back, %s\n",
			Plural(a.NumAllocRetries, "retry"), Plural(a.NumOOMs, "failed request"))
	}
	if a.Conf != "" {
		t.printf("  conf           %s\n", a.Conf)
	}
}

// notes say what the figures do not contain.
func (t *text) notes() {
	list := func(title string, items []string) {
		if len(items) == 0 {
			return
		}
		t.printf("\n%s\n", t.bold(title))
		for _, s := range items {
			var lines []string
			for _, l := range strings.Split(printable.Lines(s), "\n") {
				lines = append(lines, Wrap(l, t.width()-len("  - "))...)
			}
			t.printf("  - %s\n", printable.Verbatim(strings.Join(lines, "\n    ")))
		}
	}
	list("Not modelled", t.r.NotModelled)
	list("Uncertain", t.r.Doubts())
}

// Doubts say which figures are not known for certain, and in which bounds.
func (r *Report) Doubts() []string {
	var unsure []string
	u := &r.Uncertainty
	if u.CudnnWorkspaceBytes > 0 {
		unsure = append(unsure, fmt.Sprintf("reserved is between %v and %v with cuDNN's workspaces, by measured runs of other networks: cuDNN chooses the algorithms of convolutions; one that converts its operands takes up to %v",
			u.ReservedLowBytes, u.ReservedHighBytes, u.CudnnWorkspaceBytes))
	}
	if u.CudnnAttentionBytes > 0 {
		unsure = append(unsure, fmt.Sprintf("reserved is between %v and %v with cuDNN's attention: the workspace of a plan is nothing to %v", u.ReservedLowBytes, u.ReservedHighBytes, u.CudnnAttentionBytes))
	}
	if u.CudnnRNNBytes > 0 {
		unsure = append(unsure, fmt.Sprintf("%v of the peak are buffers of cuDNN's recurrent layers, whose sizes are not documented", u.CudnnRNNBytes))
	}
	how := "measured"
	if before, _, ok := strings.Cut(u.ContextSource, ":"); ok && (strings.HasPrefix(before, "all kernels loaded") || strings.HasPrefix(before, "memplan calibrate")) {
		how = before
	} else if u.ContextAssumed {
		how = "assumed, not measured on this GPU"
	}
	if u.ContextHighBytes > u.ContextLowBytes {
		unsure = append(unsure, fmt.Sprintf("the CUDA context is between %v and %v (%s)", u.ContextLowBytes, u.ContextHighBytes, how))
	}
	if u.SMsUnsourced {
		unsure = append(unsure, fmt.Sprintf("the %d multiprocessors of %s have no source: the context and the scratch of some kernels depend on them (device.sms)", r.Device.SMs, r.Device.Name))
	}
	if u.NCCLHighBytes > 0 {
		unsure = append(unsure, fmt.Sprintf("NCCL takes between %v and %v on each GPU for its connections, more with many GPUs; this is not in the figures", u.NCCLLowBytes, u.NCCLHighBytes))
	}
	return append(unsure, unrecorded(u.Unrecorded)...)
}

// unrecorded names operators in one line for each that they may rest on.
func unrecorded(ops []Unrecorded) []string {
	var out []string
	for _, b := range []struct{ basis, says string }{
		{"read", "read from PyTorch's sources, and in no recording of it"}, {"assumed", "assumed, neither recorded nor read from PyTorch's sources"},
	} {
		var names []string
		for _, u := range ops {
			switch {
			case u.Basis != b.basis:
			case u.Derivative:
				names = append(names, "the derivative of "+u.Op)
			default:
				names = append(names, u.Op)
			}
		}
		if len(names) > 0 {
			out = append(out, fmt.Sprintf("what these operators allocate is %s: %s", b.says, strings.Join(names, ", ")))
		}
	}
	return out
}

// table prints a table and an empty line.
func (t *text) table(tab *Table) error {
	if err := t.Flush(); err != nil {
		return err
	}
	tab.Width = t.o.Width
	return tab.Write(t.Writer)
}

// size prints a size, and nothing of nothing.
func size(b tensor.Bytes) string {
	if b == 0 {
		return "-"
	}
	return b.String()
}

func percent(part, whole tensor.Bytes) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// Count prints a number of elements as people say it.
func Count(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f billion", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f million", float64(n)/1e6)
	}
	return fmt.Sprint(n)
}

// Plural prints a number of things.
func Plural(n int64, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		return fmt.Sprintf("%d %ses", n, what)
	case strings.HasSuffix(what, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(what, "y"))
	}
	return fmt.Sprintf("%d %ss", n, what)
}
