package plan

import (
	"context"
	"strings"

	"github.com/memplan/memplan/internal/advise"
	"github.com/memplan/memplan/internal/report"
)

// LayoutOptions say over what a job is spread.
type LayoutOptions struct {
	GPUs    int64
	PerNode int64 // GPUs in a node; 0: 8
	// NodeRate and NetworkRate are what one GPU sends to the others of its node, and to other
	// nodes, in bytes a second; 0: as NVIDIA's own nodes with such GPUs have them.
	NodeRate, NetworkRate float64
	Most                  int // layouts that are returned; 0: all
	// Progress is called now and then with the simulations that were made and the layouts
	// that were found; nil: it is not.
	Progress func(simulated, found int)
}

// Layouts are ways to spread a job over GPUs.
type Layouts = report.Layouts

// Layouts finds, of the ways to spread the job over GPUs, those that fit, the fastest first, each
// with the checkpoints and the accumulation of gradients with which it is the fastest. Each GPU
// has the batch of the spec.
func (j *Job) Layouts(ctx context.Context, o LayoutOptions) (*Layouts, error) {
	r, ctx, done, err := j.open(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	_, m, err := r.Outline()
	if err != nil {
		return nil, err
	}
	s := advise.LayoutSearch{GPUs: o.GPUs, Links: advise.LinksOf(m.GPU, m.Env.Arch), Progress: o.Progress}
	if o.PerNode > 0 {
		s.Links.PerNode = o.PerNode
	}
	if o.NodeRate > 0 {
		s.Links.Node = o.NodeRate
	}
	if o.NetworkRate > 0 {
		s.Links.Network = o.NetworkRate
	}
	found, err := advise.LayOut(ctx, r, s)
	if err != nil {
		return nil, err
	}
	out := &Layouts{Version: 1, Spec: r.Path, GPUs: o.GPUs, GPUsPerNode: s.Links.PerNode, NodeRate: s.Links.Node, NetworkRate: s.Links.Network, Simulated: found.Tried,
		Rows: []report.Layout{}, Refused: []report.RefusedLayout{}}
	if first := found.First; first != nil {
		rep, samples := first.Report(), first.Job.BatchSize()*max(first.Job.Spec.Train.GradAccumulation.V, 1)
		out.Model, out.GPU, out.UsableBytes, out.Samples = rep.Model.Name, rep.Device.Name, rep.Device.UsableBytes, samples*o.GPUs
		out.Title, out.Settings = rep.Title(), report.Settings(rep)
	}
	for i, l := range found.Found {
		if o.Most > 0 && i >= o.Most {
			break
		}
		rep := l.Outcome.Report()
		row := report.Layout{Name: l.Name, Changes: []string{}, Result: rep.Verdict.Result, PeakReservedBytes: rep.Peak.ReservedBytes, HeadroomBytes: rep.Verdict.HeadroomBytes,
			StepSeconds: l.Step.Seconds, CommunicationSeconds: l.Step.Communication, WaitingSeconds: l.Step.Exposed, Arguments: advise.Arguments(r, l.Keys)}
		for _, x := range l.Options {
			row.Changes = append(row.Changes, x.ID())
		}
		for _, k := range l.Keys {
			row.Set = append(row.Set, k.String())
		}
		out.Rows = append(out.Rows, row)
	}
	for _, x := range found.Refused {
		reason, _, _ := strings.Cut(x.Err.Error(), "\n")
		out.Refused = append(out.Refused, report.RefusedLayout{Name: x.Name, Reason: reason})
	}
	return out, nil
}
