package estimate

import (
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

// attentionNotes say that cuDNN computes attention, of which modules, and between what
// the peak is, since it is not known what its plans take while they run.
func (o *Outcome) attentionNotes(r *report.Report) {
	most, env := o.Played.AttentionPlans, &o.Job.Machine.Env
	if most == 0 {
		return
	}
	u := &r.Uncertainty
	u.CudnnAttention, u.CudnnAttentionBytes = o.attentionLayers(), most
	u.ReservedHighBytes += most
	where := ""
	switch n := len(u.CudnnAttention); n {
	case 0:
	case 1:
		where = " of " + u.CudnnAttention[0]
	default:
		where = fmt.Sprintf(" of %d modules (%s to %s)", n, u.CudnnAttention[0], u.CudnnAttention[n-1])
	}
	r.Add(note.CudnnAttention.New("scaled_dot_product_attention%s is computed by cuDNN %s, which PyTorch %s asks first on sm_%d (train.sdpa leaves it out); the workspaces of its plans, which no document tells, are not in the figures",
		where, torchver.CudnnName(env.Cudnn), env.Torch, env.Arch).Of("train.sdpa", "torch").OfOp(aten.CudnnAttention.Name))
}

// attentionLayers are the modules whose attention cuDNN computes, in the order of
// their first calls.
func (o *Outcome) attentionLayers() (out []string) {
	tr, seen := o.Played.Trace, map[int32]bool{}
	row := int32(slices.IndexFunc(tr.Ops, func(name string) bool { return slices.Contains(aten.AttentionByCudnn(), name) }))
	for i := range tr.Events {
		e := &tr.Events[i]
		if e.Kind == trace.Alloc && e.Op == row && !seen[e.Layer] {
			seen[e.Layer] = true
			if name := tr.Layers[e.Layer]; name != "" {
				out = append(out, name)
			}
		}
	}
	return out
}
