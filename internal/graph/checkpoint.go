package graph

import (
	"github.com/memplan/memplan/internal/graph/techniques"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// checkpointed makes the call of an entry one through torch.utils.checkpoint if
// the entry asks for it.
func (f *fn) checkpointed(c *spec.Checkpoint, sc *scope, v value.Value) value.Value {
	el := f.u.el
	if c == nil || (c.When != nil && !el.evalBool(c.When, sc, "checkpoint")) || el.job.Inference != "" {
		return v
	}
	if len(c.Modules) > 0 {
		el.fail(c.Modules[0].At, "modules belongs to train.checkpoint; here the module is that of the entry")
	}
	if c.Every.Set {
		el.fail(c.Every.At, "every belongs to train.checkpoint")
	}
	x := *v.Expr
	x.Checkpoint = techniques.CheckpointOf(el.errs, c)
	techniques.PlainKeywords(el.errs, &x, c.At)
	if x.Checkpoint.Reentrant && len(el.plan) > 0 {
		el.fail(c.Reentrant.At, techniques.ReentrantTP)
	}
	if x.Kind == program.CallFun && c.Segments.Set {
		el.fail(c.Segments.At, "segments are made of a Sequential")
	}
	if x.Kind == program.CallMod && c.Segments.Set {
		techniques.CheckSegments(el.errs, c, f.u.class.Children[x.Child].Class, f.u.class.Children[x.Child].Path)
	}
	return value.Value{Expr: &x, Meta: v.Meta}
}

// checkpoints reports whether train.checkpoint asks for checkpoints.
func (el *elaborator) checkpoints() bool {
	c := el.spec.Train.Checkpoint
	return c != nil && el.job.Inference == "" && (c.When == nil || el.evalBool(c.When, el.spec.Env, "checkpoint"))
}
