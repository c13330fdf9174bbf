package advise

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/advice.md")

const adviceHead = `# What memplan tries where a job does not fit

Written by a test from the table of changes (` + "`go test ./internal/advise -run TestDoc -update`" + `), so that it stays true.

` + "`memplan estimate`" + ` tries these changes in a job that does not fit, alone and up to %d together, at most one of a group. Each combination is simulated
as the job itself is: it fits if no request fails on the device, and if host memory suffices, where the spec says how much there is. A
proposal is a combination that fits such that none of its parts does as well, with the same values or cheaper ones; of those with the same changes and other values the first is shown.

## Cost

The cost of a combination is the sum of

- the per cent by which a step becomes slower; a faster step counts as nothing, for speed pays for no change of numbers,
- for each change, what it does to the numbers: none (the same sums in the same types, perhaps in another order) %g, running statistics (the same training;
  batch normalization under a checkpoint updates its running averages twice in a step, by which evaluations then normalize) %g, rounding (fewer bits) %g,
  different training %g,
- for each change, the work: a switch (an environment variable or an argument) %g, a few lines %g, another library or structure %g.

The prices are taste, in per cent of the time of a step.

## Order

Proposals come in this order:

1. those that fit before those that fit only after cached memory was given back (TIGHT),
2. what costs less than %g before what costs as much as another training, such as a step of twice the time,
3. fewer changes before more,
4. well-known changes before clever ones, which are in none of the guides that people read first (PyTorch's out-of-memory message and performance tuning
   guide, Hugging Face's "Efficient Training on a Single GPU" and on several): %s,
5. what costs less, then the faster step.

Combinations are tried in this order, but for the first line, so that what is found first is what comes first. Combinations are left out only if others tell that they cannot fit: where two have the same changes
to weights, the weights are the same to the byte, and so for gradients, for optimizer state, and for what forward and backward passes hold; the sum of the
parts is less than what the combination needs. Nothing is taken to grow or shrink with anything. A test compares the outcome with trying everything.

The search that is made by itself ends with three proposals or after a million allocations and frees, ` + "`--advise`" + ` with five or after ten millions: the
same on all machines. If it ends before the first is found, what each change does alone tells which combinations are tried yet. The output says if the
search ended so, and of which proposals it is certain that nothing comes before them.

In a job that fits, ` + "`--advise`" + ` tries each change by itself and names those that free a hundredth of the reserved memory or more; of one change the
values that leave more room than cheaper ones.

## Time of a step

A roofline model (Williams, Waterman and Patterson 2009): matrix products, counted as torch.utils.flop_counter does, at %.0f %% of the peak on float32 and
%.0f %% on tensor cores (Narayanan et al. 2021, arXiv:2104.04473); bytes that kernels write, %d times (written once, read by the next operator and by the
backward pass), at %.0f %% of the bandwidth; %g µs for each kernel on top (Gray 2019, NVIDIA's blog on CUDA graphs); copies at four fifths of PCI Express,
%g of that from pageable memory (Harris 2012, NVIDIA's blog on data transfers); %g s on the CPU for a billion parameters (Ren et al. 2021, arXiv:2101.06840).
It tells slowdowns apart rather than seconds: TF32, CUDA graphs and compilers are not part of it. On bert-large it is held against seven measured runs on a V100.

| architecture | card | float32 TFLOPS | 16 bits TFLOPS | GB/s | PCIe GB/s |
|---|---|---|---|---|---|
`

// clever lists the changes that are.
func clever() string {
	var out []string
	for _, c := range All() {
		if c.Clever {
			out = append(out, "`"+c.ID+"`")
		}
	}
	return and(out)
}

// docText is docs/advice.md.
func docText() string {
	var b strings.Builder
	fmt.Fprintf(&b, adviceHead, MaxChanges, numericsPrice[Same], numericsPrice[Statistics], numericsPrice[Rounding], numericsPrice[Different],
		effortPrice[Switch], effortPrice[Lines], effortPrice[Rewrite], numericsPrice[Different], clever(), 100*fullShare, 100*halfShare, uses, 100*memoryShare, kernelTime*1e6, unpinned, hostAdam*1e9)
	for _, r := range rates {
		n := float64(r.sms)
		fmt.Fprintf(&b, "| sm_%d | %s | %.4g | %.4g | %.4g | %.4g |\n", r.arch, r.dataSheet, r.full*n/1e12, r.half*n/1e12, r.memory*n/1e9, r.link/1e9)
	}
	b.WriteString("\n## Changes\n\n| name | change | group | numbers | work | time | source | figures |\n|---|---|---|---|---|---|---|---|\n")
	for _, c := range All() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %v | %v | %s | %s | [%s](techniques.md) |\n", c.ID, c.Title, c.Group, c.Numerics, c.Effort, c.Cost, c.Source, c.Technique)
	}
	b.WriteString(`
## What is not tried

Smaller inputs (shorter sequences, smaller images): they are another task. Rewriting of the model's code beyond what presets have params
for, such as a loss in chunks of one's own model: a spec says it with blocks. Where a spec writes its own step, what the keys of train would change (accumulation, where gradients are
dropped). Pruning and distillation: they are other models.
`)
	return b.String()
}

func TestDoc(t *testing.T) {
	const path = "../../docs/advice.md"
	text := docText()
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if was, err := os.ReadFile(path); err != nil || string(was) != text {
		t.Errorf("docs/advice.md is stale (%v): run go test ./internal/advise -run TestDoc -update", err)
	}
}
