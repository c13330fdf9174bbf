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

A test writes this page from the table of changes (` + "`go test ./internal/advise -run TestDoc -update`" + `).

If a job does not fit, ` + "`memplan estimate`" + ` tries these changes, alone and combined: up to %d changes, at most one from each group of the table below. Each
combination is simulated like the job itself. It fits if every allocation on the device succeeds and, where the spec gives the size of host memory, host
memory suffices. A combination that fits is proposed unless a part of it also fits with the same or cheaper values. If several proposals have the same
changes with different values, only the first is shown.

## Cost

The cost of a combination is a sum of three things:

- **time**: the per cent by which a step becomes slower. A faster step counts as 0: speed cannot make up for a change of the results.
- **numbers**: for each change, what it does to the numerical results.
  - none (%g): the same sums in the same types, perhaps in another order;
  - running statistics (%g): the same training, but batch normalization under a checkpoint updates its running averages twice in a step, and evaluations
    normalize with them;
  - rounding (%g): fewer bits;
  - different training (%g).
- **work**: for each change, what has to be edited: a switch, which is an environment variable or an argument (%g); a few lines (%g); another library or
  structure (%g).

The numbers in brackets are a matter of taste; their unit is per cent of the time of a step.

## Order

Proposals are sorted by these criteria, the first of them first:

1. proposals that fit come before proposals that fit only after cached memory is given back (TIGHT);
2. a cost below %g comes before a higher cost, such as that of a different training or of a step of twice the time;
3. fewer changes come before more;
4. well-known changes come before less known ones. Less known are the changes that are in none of three common guides (PyTorch's out-of-memory message, its
   performance tuning guide, and Hugging Face's "Efficient Training on a Single GPU" and on several): %s;
5. a lower cost comes first, then a faster step.

Combinations are tried in this order, except for the first criterion, so the proposals that come first are found first. A combination is left out only if
simulated combinations prove that it cannot fit. The proof uses two facts. If two combinations have the same changes that affect weights, their weights have
the same size to the byte; the same holds for gradients, for optimizer state, for what the optimizer's step takes beside, and for what forward and backward
passes hold. And the sum of these parts is at most what a combination needs. A change that does nothing beside another one, such as ` + "`for-loop`" + ` where the
optimizer is on the CPU, is not combined with it. It is not assumed that any change makes memory smaller or larger. A test compares the outcome with trying everything.

By default the search ends with three proposals or after a million allocations and frees; with ` + "`--advise`" + `, with five or after ten million. The
result is the same on all machines. If the search reaches that limit before it finds a proposal, what each change was seen to do decides which combinations it
still tries. The output says if the search reached the limit, and which proposals are certain to come first.

In a job that fits, ` + "`--advise`" + ` tries each change by itself. It names the changes that free 1 %% of the reserved memory or more. Of the values of one
change it names those that leave more room than all cheaper values.

## Time of a step

Times come from a roofline model (Williams, Waterman and Patterson 2009), which is a sum of:

- matrix products, counted as torch.utils.flop_counter does, at %.0f %% of the peak on float32 and %.0f %% on tensor cores (Narayanan et al. 2021,
  arXiv:2104.04473);
- the bytes that kernels write, counted %d times (written once, read by the next operator and by the backward pass), at %.0f %% of the bandwidth;
- %g µs for each kernel (Gray 2019, NVIDIA's blog on CUDA graphs);
- copies, at four fifths of the speed of PCI Express, and at %g of that from pageable memory (Harris 2012, NVIDIA's blog on data transfers);
- %g s for an optimizer step of a billion parameters on the CPU (Ren et al. 2021, arXiv:2101.06840).

The model is meant to compare changes, not to predict seconds: TF32, CUDA graphs and compilers are not part of it. A test compares it with seven measured runs
of bert-large on a V100.

| architecture | card | float32 TFLOPS | 16 bits TFLOPS | GB/s | PCIe GB/s |
|---|---|---|---|---|---|
`

const layoutsHead = `
## Layouts over GPUs

` + "`memplan estimate job.yaml --gpus 64 --layout search`" + ` lists ways to spread a job over 64 GPUs: DistributedDataParallel, with and without
ZeroRedundancyOptimizer; FSDP2 (FSDP1, where the spec has that) that reshards after the forward pass, within nodes or not at all; groups of nodes with all parameters each (HSDP); with
amp-bf16 also FSDP2 that gathers parameters in bfloat16 by its mixed precision in the place of autocast. Of a job of DeepSpeed they are its stages. Each GPU has
the batch of the spec, so that all layouts take the same samples in a step. Tensor, pipeline, context and expert parallelism are not searched.

With each layout the changes of the groups checkpoint and batch that leave the training what it is are tried, those with the shortest steps first, until one fits: it is
listed. Each is simulated. What fits comes before what is TIGHT, and that before what does not fit; then the shorter step comes first.

The time of a step is that of the roofline above, and what collectives take that nothing is computed beside: of DistributedDataParallel the all-reduce
beyond the backward pass, and the last bucket; of FSDP the first module's gather and the last one's reduce-scatter, and what is beyond each pass (Zhao et al. 2023,
arXiv:2304.11277). Collectives are rings, all-reduces also trees, with the latencies of NCCL's own model (src/graph/tuning.cc, protocol Simple): %.3g µs, and %.3g µs
for each step of a ring in a node, %.3g µs of a tree, %.3g µs between nodes. Bandwidths are what NCCL counts on for NVLink (src/graph/topo.h), and the network adapters of
NVIDIA's own nodes; of GPUs without NVLink, PCI Express and %g Gbit/s for each of %d GPUs. ` + "`--links 370,50`" + ` sets both, in GB/s of one GPU.

A test holds the times against 21 runs that llm-foundry published of FSDP on 8 to 64 GPUs (testdata/measured/llmfoundry): predicted steps are 8 to 25 %% longer than
those of H100, and 44 to 62 %% longer than those of A100, whose tensor cores reach more of their peak there than the half that is assumed. How steps lengthen from 8 to 64 GPUs
is within 6 %%. The order of layouts rests on differences; the seconds are no promise.

| architecture | GB/s in a node | GB/s between nodes | node |
|---|---|---|---|
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
	fmt.Fprintf(&b, layoutsHead, ncclBase*1e6, ringNode*1e6, treeNode*1e6, netStep*1e6, plainNetwork, GPUsPerNode)
	for _, x := range nvlinks {
		fmt.Fprintf(&b, "| sm_%d | %.4g | %.4g | %s |\n", x.arch, x.each*x.links, x.network/8, x.node)
	}
	b.WriteString(`
## What is not tried

- Smaller inputs (shorter sequences, smaller images): that is another task.
- Pruning and distillation: the result is another model.
- Rewriting the code of a model, beyond what presets have params for. A loss in chunks of your own model, for example, is written with blocks.
- Where a spec writes its own step: changes that keys of train make, such as accumulation and where gradients are cleared.
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
