package main

import (
	"fmt"
	"strings"
)

// elementLoss is a loss of each element against a target of the same shape.
func (g *generator) elementLoss(m *body) lossText {
	s := m.cur.shape
	input := fmt.Sprintf("    y: {shape: %s}\n", list(s[1:]))
	last := s[len(s)-1]
	weights := func(name string) string {
		if last > 40 || g.chance(0.5) {
			return ""
		}
		return fmt.Sprintf(", %s: [%s]", name, strings.TrimSuffix(strings.Repeat("0.5, ", int(last)), ", "))
	}
	reduction := g.pick("mean", "mean", "sum")
	args := "target: y, reduction: " + reduction
	head := g.pick("mse_loss", "MSELoss", "smooth_l1_loss", "l1_loss", "L1Loss", "huber_loss", "kl_div", "KLDivLoss", "SmoothL1Loss", "HuberLoss",
		"BCEWithLogitsLoss", "binary_cross_entropy_with_logits", "BCELoss", "TripletMarginLoss", "CosineEmbeddingLoss")
	if g.breadth > 0 {
		head = g.pick("PoissonNLLLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "MarginRankingLoss", "SoftMarginLoss", "MultiLabelSoftMarginLoss", "TripletMarginLoss",
			"TripletMarginWithDistanceLoss", head)
	}
	switch head {
	case "SmoothL1Loss":
		args += ", beta: " + g.pick("0.0", "0.5")
	case "HuberLoss":
		args += ", delta: 0.5"
	case "KLDivLoss":
		args = "target: y, reduction: " + g.pick("batchmean", "sum", "mean") + ", log_target: " + g.pick("true", "false")
	case "BCEWithLogitsLoss":
		args += weights("weight") + weights("pos_weight")
	case "BCELoss":
		args += weights("weight")
	case "GaussianNLLLoss":
		args += ", var: z, full: " + g.pick("true", "false")
		input += fmt.Sprintf("    z: {shape: %s}\n", list(s[1:]))
	case "PoissonNLLLoss":
		args += ", log_input: " + g.pick("true", "false") + ", full: " + g.pick("true", "false")
	case "MarginRankingLoss":
		args += ", input2: z, margin: " + g.pick("0.0", "0.4")
		input += fmt.Sprintf("    z: {shape: %s}\n", list(s[1:]))
	case "TripletMarginWithDistanceLoss":
		args = "positive: y, negative: z, swap: " + g.pick("true", "false") + ", reduction: " + reduction
		input += fmt.Sprintf("    z: {shape: %s}\n", list(s[1:]))
	case "TripletMarginLoss":
		args = "positive: y, negative: z, p: " + g.pick("1.0", "2.0") + ", swap: " + g.pick("true", "false") + ", reduction: " + reduction
		input += fmt.Sprintf("    z: {shape: %s}\n", list(s[1:]))
	case "CosineEmbeddingLoss":
		if len(s) != 2 {
			head = "MSELoss"
			break
		}
		args = "input2: y, target: z, reduction: " + reduction
		input += "    z: {shape: [], dtype: int64}\n"
	}
	return lossText{input, fmt.Sprintf("  loss: {%s: {%s}}\n", head, args)}
}

// classLoss is a loss of classes along dimension 1 of the current value, with
// classes or probabilities as the target.
func (g *generator) classLoss(s []int64) lossText {
	head := g.pick("cross_entropy", "CrossEntropyLoss")
	args := "target: y, reduction: " + g.pick("mean", "mean", "sum")
	input := fmt.Sprintf("    y: {shape: %s, dtype: int64}\n", list(s[2:]))
	if g.chance(0.2) { // probabilities
		input = fmt.Sprintf("    y: {shape: %s}\n", list(s[1:]))
	} else if g.chance(0.5) {
		args += ", ignore_index: 1"
	}
	switch {
	case g.chance(0.3):
		args += ", label_smoothing: 0.1"
	case head == "CrossEntropyLoss" && s[1] < 40 && g.chance(0.5):
		args += fmt.Sprintf(", weight: [%s]", strings.TrimSuffix(strings.Repeat("0.5, ", int(s[1])), ", "))
	}
	return lossText{input, fmt.Sprintf("  loss: {%s: {%s}}\n", head, args)}
}
