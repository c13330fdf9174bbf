package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/tensor"
)

// Layouts are the ways to spread one job over a number of GPUs, the fastest that fits first. JSON
// of it is a contract. Times are those of a model, see docs/advice.md.
type Layouts struct {
	Version     int          `json:"memplan_layouts"`
	Spec        string       `json:"spec"`
	Model       string       `json:"model"`
	GPUs        int64        `json:"gpus"`
	GPUsPerNode int64        `json:"gpus_per_node"`
	GPU         string       `json:"gpu"`
	UsableBytes tensor.Bytes `json:"usable_bytes"`
	NodeRate    float64      `json:"node_bytes_per_second"`    // of one GPU to the others of its node
	NetworkRate float64      `json:"network_bytes_per_second"` // of one GPU to other nodes
	Samples     int64        `json:"samples_per_step"`         // of all GPUs
	Simulated   int          `json:"simulated"`
	Rows        []Layout     `json:"layouts"`
	// Refused are ways that the job cannot be spread in, as memplan models it.
	Refused []RefusedLayout `json:"refused"`

	Title    string `json:"-"`
	Settings string `json:"-"`
}

// Layout is one way, with the changes that make it fit.
type Layout struct {
	Name                 string       `json:"layout"`
	Changes              []string     `json:"changes"` // by the names of memplan list changes
	Result               string       `json:"result"`
	PeakReservedBytes    tensor.Bytes `json:"peak_reserved_bytes"`
	HeadroomBytes        tensor.Bytes `json:"headroom_bytes"`
	StepSeconds          float64      `json:"step_seconds"`
	CommunicationSeconds float64      `json:"communication_seconds"` // of collectives in a step
	WaitingSeconds       float64      `json:"waiting_seconds"`       // of them, what nothing is computed beside
	Set                  []string     `json:"set"`                   // keys of the spec
	Arguments            []string     `json:"arguments"`             // of the command line
}

// RefusedLayout is a way that the job cannot be spread in, and why.
type RefusedLayout struct {
	Name   string `json:"layout"`
	Reason string `json:"reason"`
}

// Write prints the layouts as a table, and how to make the first.
func (l *Layouts) Write(w io.Writer, o Options) error {
	nodes := ""
	if n := (l.GPUs + l.GPUsPerNode - 1) / l.GPUsPerNode; n > 1 {
		nodes = fmt.Sprintf(" and %.3g GB/s to other nodes", l.NetworkRate/1e9)
	}
	printable.Fprintf(w, "%s\n%s\n", l.Title, l.Settings)
	printable.Fprintf(w, "%s in a step; a GPU sends %.3g GB/s within its node of %d%s (--links)\n\n", Plural(l.Samples, "sample"), l.NodeRate/1e9, l.GPUsPerNode, nodes)
	t := &Table{Header: []string{"", "layout", "changes", "reserved", "headroom", "step", "waiting"},
		Numbers: []bool{false, false, false, true, true, true, true}, Width: o.Width, Spare: []int{4, 6}}
	for i := range l.Rows {
		r := &l.Rows[i]
		changes := strings.Join(r.Changes, " + ")
		if changes == "" {
			changes = "-"
		}
		t.Rows = append(t.Rows, []string{r.Result, r.Name, changes, r.PeakReservedBytes.String(), r.HeadroomBytes.String(), seconds(r.StepSeconds), seconds(r.WaitingSeconds)})
	}
	if err := t.Write(w); err != nil {
		return err
	}
	switch {
	case len(l.Rows) == 0:
	case l.Rows[0].Result == OOMs:
		printable.Fprintf(w, "\nNone fits with checkpoints and accumulation; the first needs the least.\n")
	default:
		printable.Fprintf(w, "\nThe first: %s\n", strings.Join(l.Rows[0].Arguments, " "))
	}
	printable.Fprintf(w, "step: seconds of one, by a roofline of the GPU and NCCL's own model of its links; waiting: what of it is communication\nalone. Memory is simulated (%s); times are a model's, for the order of layouts.\n", Plural(int64(l.Simulated), "simulation"))
	for _, r := range l.Refused {
		printable.Fprintf(w, "! %s was left out: %s\n", r.Name, r.Reason)
	}
	return nil
}

// seconds writes a time with three digits.
func seconds(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.3g s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", 1e3*s)
	}
	return fmt.Sprintf("%.3g µs", 1e6*s)
}
