package cli

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/advise"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/plan"
)

// layout is what the command line asks of the search for ways to spread a job over GPUs.
type layout struct {
	how     string
	gpus    int64
	perNode int64
	links   string

	node, network float64 // links, in bytes a second
}

// shownLayouts is how many are listed.
const shownLayouts = 10

func (l *layout) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&l.how, "layout", "", "search: list the best ways to spread the job over --gpus")
	completeFlag(c, "layout", func() []string { return []string{"search"} })
	f.Int64Var(&l.gpus, "gpus", 0, "GPUs that --layout spreads the job over")
	f.Int64Var(&l.perNode, "gpus-per-node", 8, "of --gpus, how many are in one node")
	f.StringVar(&l.links, "links", "", "with --layout: GB/s that a GPU sends within its node and to other nodes, such as 370,50; default: as in NVIDIA's own nodes")
}

func (l *layout) asked() bool { return l.how != "" }

// check refuses what does not go together.
func (l *layout) check(e *estimation) error {
	switch {
	case l.how == "" && (l.gpus != 0 || l.links != "" || l.perNode != 8):
		return usagef("--gpus, --gpus-per-node and --links belong to --layout search; the GPUs of a job are in its spec: ddp: {ranks: 8}")
	case l.how == "":
		return nil
	case l.how != "search":
		return usagef("--layout %s: must be search", l.how)
	case l.gpus < 2 || l.gpus > 1<<17:
		return usagef("--layout search needs --gpus, a number from 2 to %d", 1<<17)
	case l.perNode < 1:
		return usagef("--gpus-per-node %d: must be at least 1", l.perNode)
	case e.curve || e.search != "" || e.fix.more:
		return usagef("--layout does not go with --batch-curve, --search and --advise")
	case e.pictures.asked() != "":
		return usagef("--layout does not go with --%s", e.pictures.asked())
	case e.format != "text" && e.format != "json":
		return usagef("--layout has the formats text and json")
	case strings.Contains(e.gpu, ","):
		return usagef("--layout is for one kind of GPU; --gpu names several")
	}
	if l.links == "" {
		return nil
	}
	node, network, ok := strings.Cut(l.links, ",")
	for _, x := range []struct {
		text string
		out  *float64
	}{{node, &l.node}, {network, &l.network}} {
		v, err := strconv.ParseFloat(strings.TrimSpace(x.text), 64)
		if !ok || err != nil || !(v > 0 && v < 1e6) {
			return usagef("--links %s: must be two numbers of GB/s, such as 370,50", l.links)
		}
		*x.out = v * 1e9
	}
	return nil
}

// search lists the layouts.
func (l *layout) search(ctx context.Context, s *Streams, j *plan.Job, format string) error {
	p := newProgress(s)
	found, err := j.Layouts(ctx, plan.LayoutOptions{GPUs: l.gpus, PerNode: l.perNode, NodeRate: l.node, NetworkRate: l.network, Most: shownLayouts, Progress: p.tried})
	p.clear()
	switch {
	case errors.Is(err, advise.ErrNotTraining), errors.Is(err, advise.ErrDivided):
		return usagef("--layout search: %w", err)
	case err != nil:
		return err
	}
	if len(found.Rows) == 0 {
		return usagef("the job cannot be spread over GPUs: %s: %s", found.Refused[0].Name, found.Refused[0].Reason)
	}
	if format == "json" {
		return report.JSON(s.Out, found)
	}
	return s.people(func(w io.Writer) error { return found.Write(w, report.Options{Width: s.terminal()}) })
}
