package accuracy

import (
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/importer"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/spec"
)

// gpusOfMegatron is on how many GPUs Megatron's functional tests run.
const gpusOfMegatron = 8

// rowsOfMegatron is how many measurements are of jobs of which nothing is left out, and
// medianOfMegatron, manyOfMegatron and mostOfMegatron are the errors in percent below which half
// of them, nine tenths and all are, as docs/trainer.md has them.
const rowsOfMegatron, medianOfMegatron, manyOfMegatron, mostOfMegatron = 294, 0.1, 1.5, 3.25

// rowsOfExperts is how many are of jobs with experts, of which the data decide how many tokens
// each gets; the others are as those of dense jobs. Above mostOfExperts is one, outlierOfExperts
// at most: a job with num_distributed_optimizer_instances in the older containers, whose
// measurement is to the byte that of the job without.
const rowsOfExperts, medianOfExperts, manyOfExperts, mostOfExperts, outlierOfExperts = 80, 1.6, 5.0, 5.5, 12.5

// TestMeasuredMegatron holds the largest max_memory_allocated that Megatron's functional tests
// recorded on GPUs of jobs of which nothing is left out. The last process writes it
// (_set_tensorboard_writer in megatron/training/global_vars.py), which has the last stage of a
// pipeline. With attention_backend auto, that of Transformer Engine is taken as its source says:
// flash attention, or cuDNN's, but unfused in deterministic_mode before Hopper with flash-attn
// before 2.4.1, which the containers named lts have. The others are counted by the first
// argument that is missing.
func TestMeasuredMegatron(t *testing.T) {
	f, err := os.Open(needs.File(t, "measured/megatron/arguments.yaml.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		if name, args, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, "#") {
			jobs[name] = args
		}
	}
	predicted := map[string]float64{}
	missing := map[string]int{}
	var errors, experts []float64
	for _, row := range needs.Rows(t, "measured", "megatron", "rows.csv") {
		name, gpu := row[0], row[2]
		args := jobs[name]
		if strings.HasPrefix(row[1], "lts") && strings.Contains(args, `"--deterministic-mode": true`) && !strings.Contains(args, "--attention-backend") {
			args = strings.Replace(args, "MODEL_ARGS: {", `MODEL_ARGS: {"--attention-backend": "unfused", `, 1)
		}
		key := args + gpu
		if _, ok := predicted[key]; !ok {
			got, why := peakOfMegatron(t, name, args, gpu)
			if why != "" {
				missing[why]++
				continue
			}
			predicted[key] = got
		}
		want, err := strconv.ParseFloat(row[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		e := 100 * (predicted[key]/want - 1)
		if strings.Contains(jobs[name], `"--num-experts"`) {
			t.Logf("%s on %s (%s): %.0f bytes, measured %.0f: %+.2f %%", name, gpu, row[1], predicted[key], want, e)
			experts = append(experts, math.Abs(e))
			continue
		}
		errors = append(errors, math.Abs(e))
		if math.Abs(e) > mostOfMegatron {
			t.Errorf("%s on %s (%s): %.0f bytes, measured %.0f: %+.2f %%", name, gpu, row[1], predicted[key], want, e)
		}
	}
	if len(errors) != rowsOfMegatron {
		t.Fatalf("%d rows in scope, not %d; missing: %v", len(errors), rowsOfMegatron, missing)
	}
	slices.Sort(errors)
	median, many := quantile(errors, 0.5), quantile(errors, 0.9)
	t.Logf("%d rows, median error %.3f %%, of nine tenths %.2f %%, largest %.2f %%; not in scope: %v", len(errors), median, many, errors[len(errors)-1], missing)
	if median > medianOfMegatron || many > manyOfMegatron {
		t.Errorf("median error %.3f %%, of nine tenths %.2f %%", median, many)
	}
	if len(experts) != rowsOfExperts {
		t.Fatalf("%d rows with experts in scope, not %d", len(experts), rowsOfExperts)
	}
	slices.Sort(experts)
	median, many = quantile(experts, 0.5), quantile(experts, 0.9)
	most, outlier := experts[len(experts)-2], experts[len(experts)-1]
	t.Logf("%d rows with experts, median error %.2f %%, of nine tenths %.2f %%, all but one %.2f %%, largest %.2f %%", len(experts), median, many, most, outlier)
	if median > medianOfExperts || many > manyOfExperts || most > mostOfExperts || outlier > outlierOfExperts {
		t.Errorf("with experts: median error %.2f %%, of nine tenths %.2f %%, all but one %.2f %%, largest %.2f %%", median, many, most, outlier)
	}
}

// peakOfMegatron is the peak of a job, or why it is not in scope.
func peakOfMegatron(t *testing.T, name, args, gpu string) (peak float64, why string) {
	made, err := importer.Read([]importer.File{{Name: name + ".yaml", Text: []byte(args)}}, importer.Options{Processes: gpusOfMegatron})
	if err != nil {
		return 0, reason(err.Error())
	}
	recipe := &estimate.Recipe{Path: name, Text: append(made.Text, fmt.Sprintf("device: {gpu: %s-80gb}\n", gpu)...)}
	job, err := recipe.Job()
	if err != nil {
		return 0, reason(err.Error())
	}
	if n := job.Program.Parallel.Stages(); n > 0 {
		if job, err = recipe.Job(estimate.Key{Path: "trainer.megatron." + spec.PipelineRank, Value: strconv.FormatInt(n-1, 10)}); err != nil {
			t.Fatal(err)
		}
	}
	o, err := estimate.Run(job)
	if err != nil {
		return 0, reason(err.Error())
	}
	r := o.Report()
	for _, n := range r.NotModelled {
		if !strings.Contains(n, "deterministic_mode:") && !strings.Contains(n, "attention_backend:") && !strings.Contains(n, "balance:") && !strings.Contains(n, "the data's") {
			return 0, reason(n)
		}
	}
	return float64(r.Peak.AllocatedBytes), ""
}

// reason is the argument that a text is about.
func reason(text string) string {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ':' || r == '\n' }) {
		word = strings.TrimPrefix(word, "trainer.megatron.")
		if strings.Contains(word, "_") && !strings.Contains(word, ".") && !strings.HasPrefix(word, "gpt3_") && !strings.HasPrefix(word, "mixtral_") {
			return word
		}
	}
	return text
}
