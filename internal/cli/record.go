package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/record"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/torchver"
)

// recording is what the command line asks of memplan record.
type recording struct {
	gpu, out, batch string
	steps           int64
	answers         []string
	real            bool
	failed          error // of the command, after it was recorded up to there
}

// minBatches are how many sizes of the batch tell of others.
const minBatches = 3

func newRecord(s *Streams) *cobra.Command {
	var r recording
	c := &cobra.Command{
		Use:   "record [flags] -- COMMAND ARGS...",
		Short: "Record what a PyTorch script does, without a GPU, for the other commands to plan",
		Long: `Record runs your command, such as python train.py, in your own Python (PyTorch 2.6 or
later; one without CUDA will do), pretends a GPU to it, and stops it after some steps of
its optimizer. The file that it writes is a job like a spec: memplan estimate, check, diff
and export take it, on other GPUs, with other options of the allocator and in other
releases of PyTorch. Tensors on the GPU have no values: what a script reads back from them
is made up, and said (docs/record.md). Nothing of your data or weights is in the file.

--real runs the command on the GPU of this machine and records what PyTorch's allocator
does there, to compare: memplan diff train.rec.gz real.rec.gz.

--batch NAME=V1,V2,V3 runs the command once for each of three or more sizes of the batch,
with NAME's value in the command: {NAME}, or what follows --NAME. From the recordings
follow all other sizes, and so the largest batch.`,
		Example: `  memplan record -o gpt2.rec.gz --gpu rtx-4090 -- python train.py --device cuda
  memplan record --batch batch-size=8,16,32,64 -- python train.py --batch-size 8`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 || c.ArgsLenAtDash() != 0 {
				return usagef("record takes a command behind --: memplan record -- python train.py")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return r.run(c, s, args) },
	}
	f := c.Flags()
	f.StringVar(&r.gpu, "gpu", device.Default, "GPU to pretend, such as a100-80gb; see memplan list devices")
	f.StringVarP(&r.out, "out", "o", "", "file to write (default: the script's name with "+recordingExt+".gz)")
	f.StringVar(&r.batch, "batch", "", "NAME=V1,V2,V3: record several sizes of the batch")
	f.Int64Var(&r.steps, "steps", 3, "optimizer steps to record")
	f.BoolVar(&r.real, "real", false, "run on the GPU that there is, and record what PyTorch's allocator does")
	f.StringArrayVar(&r.answers, "answer", nil, "what a value that the script reads back is: item=1, train.py:12=true (may be repeated)")
	return c
}

// run records a command once, or once for each size of its batch.
func (r *recording) run(c *cobra.Command, s *Streams, command []string) error {
	gpu, err := device.Lookup(r.gpu)
	if err != nil {
		return usagef("--gpu: %w", err)
	}
	if r.real && (c.Flags().Changed("gpu") || len(r.answers) > 0) {
		return usagef("--real takes the GPU that there is, and what it answers: --gpu and --answer do not go with it")
	}
	if r.steps < 1 {
		return usagef("--steps %d: must be 1 or more", r.steps)
	}
	start := record.Start{
		Real: r.real, Steps: r.steps, Stdin: s.In, Stdout: s.Err, Stderr: s.Err,
		Device: record.Device{Key: gpu.Name, Name: gpu.Display, Arch: fmt.Sprintf("sm%d", gpu.Arch), SMs: int64(gpu.SMs), Memory: gpu.Total.Value, Cudnn: torchver.Cudnns()},
	}
	if start.Answers, err = parseAnswers(r.answers); err != nil {
		return err
	}
	name, values, err := parseBatch(r.batch)
	if err != nil {
		return err
	}
	if r.out == "" {
		r.out = outName(command)
	}
	var parts []string
	defer func() {
		for _, p := range parts {
			os.Remove(p)
		}
	}()
	for _, v := range values {
		start.Command, start.Batch = command, nil
		if name != "" {
			if start.Command, err = withBatch(command, name, v); err != nil {
				return err
			}
			start.Batch = map[string]int64{name: v}
			printable.Fprintf(s.Err, "memplan: %s\n", strings.Join(start.Command, " "))
		}
		start.Out = r.out + ".part" + strconv.Itoa(len(parts))
		parts = append(parts, start.Out)
		if err := r.once(c, s, &start); err != nil {
			return err
		}
	}
	if err := joined(r.out, parts); err != nil {
		return err
	}
	return r.summary(c, s)
}

// once records a command. One that fails is an error, unless it was recorded up to there.
func (r *recording) once(c *cobra.Command, s *Streams, start *record.Start) error {
	err := start.Run(c.Context())
	if c.Context().Err() != nil {
		return c.Context().Err()
	}
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		if st, missing := os.Stat(start.Out); missing == nil && st.Size() > 0 {
			r.failed = err
			return nil
		}
		return fmt.Errorf("%s failed (%w) before it put anything on the GPU: nothing was recorded", start.Command[0], err)
	}
	return err
}

// summary says what was recorded.
func (r *recording) summary(c *cobra.Command, s *Streams) error {
	text, err := files.ReadNamed(r.out, maxRecording)
	if err != nil {
		return err
	}
	all, err := readRecordings(text, s.bounded(c.Context()))
	if err != nil {
		return fmt.Errorf("%s: %w", r.out, err)
	}
	operators, steps := 0, 0
	for i := range all.All[0].Lines {
		switch l := &all.All[0].Lines[i]; {
		case l.Kind == record.Op:
			operators++
		case l.Kind == record.Phase && l.Name == "step":
			steps = max(steps, l.N)
		}
	}
	sizes := ""
	if n := len(all.All); n > 1 {
		sizes = fmt.Sprintf(", %d sizes of the batch", n)
	}
	printable.Fprintf(s.Out, "%s: %s, %s%s, %.1f KiB\n", r.out, report.Plural(int64(steps), "step"), report.Plural(int64(operators), "operator"), sizes, float64(len(text))/1024)
	printable.Fprintf(s.Out, "memplan estimate %s tells what it takes\n", printable.File(r.out))
	if r.failed != nil {
		return fmt.Errorf("the command failed (%w); %s has what it did up to there", r.failed, printable.File(r.out))
	}
	if steps == 0 {
		printable.Fprintf(s.Err, "memplan: no optimizer made a step: what follows is of the script up to its end\n")
	}
	return nil
}

// joined puts recordings into one file, which gzip allows.
func joined(out string, parts []string) error {
	w, err := os.Create(out)
	if err != nil {
		return err
	}
	defer w.Close()
	for _, p := range parts {
		in, err := os.Open(p)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, in)
		in.Close()
		if err != nil {
			return err
		}
	}
	return w.Close()
}

// outName is how a recording is called: as its script, in this folder.
func outName(command []string) string {
	name := "job"
	for _, a := range command {
		if strings.HasSuffix(a, ".py") {
			name = strings.TrimSuffix(filepath.Base(a), ".py")
			break
		}
	}
	return name + recordingExt + ".gz"
}

// parseBatch reads NAME=V1,V2,V3; without one there is a run without a value.
func parseBatch(text string) (name string, values []int64, err error) {
	if text == "" {
		return "", []int64{0}, nil
	}
	name, list, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return "", nil, usagef("--batch %s: must be NAME=V1,V2,V3", text)
	}
	for _, v := range strings.Split(list, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil || n < 1 || slices.Contains(values, n) {
			return "", nil, usagef("--batch %s: %q must be a whole number of 1 or more that is not there yet", text, v)
		}
		values = append(values, n)
	}
	if len(values) < minBatches {
		return "", nil, usagef("--batch %s: %d sizes tell nothing of others; name three or more", text, len(values))
	}
	return name, values, nil
}

// withBatch is the command with a size of the batch: in the place of {NAME}, behind
// --NAME, or behind NAME= as Hydra has it.
func withBatch(command []string, name string, value int64) ([]string, error) {
	out, n, found := slices.Clone(command), strconv.FormatInt(value, 10), false
	same := func(flag string) bool {
		return strings.ReplaceAll(strings.TrimLeft(flag, "-"), "_", "-") == strings.ReplaceAll(name, "_", "-")
	}
	for i, a := range out {
		if strings.Contains(a, "{"+name+"}") {
			out[i], found = strings.ReplaceAll(a, "{"+name+"}", n), true
			continue
		}
		flag, _, inline := strings.Cut(a, "=")
		switch {
		case !same(flag):
		case inline:
			out[i], found = flag+"="+n, true
		case strings.HasPrefix(a, "-") && i+1 < len(out):
			out[i+1], found = n, true
		}
	}
	if !found {
		return nil, usagef("--batch: the command has neither {%s} nor --%s to put a value into", name, name)
	}
	return out, nil
}

// parseAnswers reads KEY=VALUE, a number or true or false.
func parseAnswers(list []string) (map[string]any, error) {
	out := map[string]any{}
	for _, a := range list {
		key, text, ok := strings.Cut(a, "=")
		var v any
		switch n, err := strconv.ParseFloat(text, 64); {
		case text == "true" || text == "false":
			v = text == "true"
		case err == nil && n == float64(int64(n)) && !strings.ContainsAny(text, ".eE"):
			v = int64(n)
		case err == nil:
			v = n
		default:
			ok = false
		}
		if !ok || key == "" {
			return nil, usagef("--answer %s: must be KEY=VALUE with a number, true or false, such as item=1 or train.py:12=true", a)
		}
		out[key] = v
	}
	return out, nil
}
