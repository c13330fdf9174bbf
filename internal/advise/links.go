package advise

import (
	"math"
	"strings"

	"github.com/memplan/memplan/internal/device"
)

// Links are the connections of a GPU, as NCCL uses them.
type Links struct {
	Node    float64 // bytes a second to the other GPUs of its node, in one direction
	Network float64 // bytes a second to other nodes, this GPU's share of its node's adapters
	PerNode int64   // GPUs in a node
}

// nvlink is what NCCL counts on for each link of NVLink, in GB/s: topo.h, SM60_NVLINK_BW and
// those that follow; the links of a card are those of its data sheet.
type nvlink struct {
	arch    int
	each    float64
	links   float64
	network float64 // Gbit/s of adapters for each GPU of NVIDIA's own node
	node    string
}

var nvlinks = []nvlink{
	{60, 18, 4, 50, "DGX-1: four adapters of 100 Gbit/s for eight GPUs"},
	{70, 20, 6, 50, "DGX-1: four adapters of 100 Gbit/s for eight GPUs"},
	{80, 20, 12, 200, "DGX A100: eight adapters of 200 Gbit/s"},
	{90, 20.6, 18, 400, "DGX H100: eight adapters of 400 Gbit/s"},
	{100, 40.1, 18, 400, "DGX B200: eight adapters of 400 Gbit/s"},
}

// plainNetwork is what a GPU has in a node without NVLink: an adapter of 100 Gbit/s for
// eight of them.
const plainNetwork = 100.0 / 8

// GPUsPerNode is how many GPUs a node has, unless it is said.
const GPUsPerNode = 8

// LinksOf are the links of a GPU in a node of the kind that it is sold in: with NVLink
// where all cards of its architecture have it, else by PCI Express.
func LinksOf(g *device.GPU, arch int) Links {
	const gbit = 1e9 / 8
	out := Links{Node: rateOf(arch).link, Network: plainNetwork * gbit, PerNode: GPUsPerNode}
	if g != nil && (strings.Contains(g.Display, "PCIe") || strings.Contains(g.Display, "NVL")) {
		return out
	}
	for _, x := range nvlinks {
		if x.arch == arch {
			out.Node, out.Network = x.each*x.links*1e9, x.network*gbit
		}
	}
	return out
}

// What a collective waits for beside its bytes, in seconds: NCCL's own model (tuning.cc:
// baseLat and hwLat of the protocol Simple).
const (
	ncclBase  = 8.4e-6
	ringNode  = 3.4e-6 // a step of a ring within a node
	treeNode  = 4.0e-6
	netStep   = 14e-6 // a step between nodes
	treeShare = 0.92  // of the bandwidth that a tree reaches
)

// group is what takes part in a collective.
type group struct {
	ranks, nodes float64
	bandwidth    float64 // bytes a second through each rank, of a ring
}

// of makes a group of ranks that stand side by side: all of a node before those of the next.
func (l Links) of(ranks int64) group {
	per := min(ranks, l.PerNode)
	g := group{ranks: float64(ranks), nodes: math.Ceil(float64(ranks) / float64(max(per, 1))), bandwidth: l.Node}
	if g.nodes > 1 { // as many rings as adapters, each through all GPUs of a node
		g.bandwidth = min(l.Node, float64(per)*l.Network)
	}
	return g
}

// across makes a group of one rank out of each of so many groups of shards.
func (l Links) across(groups, shards int64) group {
	if groups*shards <= l.PerNode {
		return l.of(groups)
	}
	inNode := max(1, l.PerNode/shards) // of the ranks, in a node
	g := group{ranks: float64(groups), nodes: math.Ceil(float64(groups) / float64(inNode)), bandwidth: l.Network * float64(inNode)}
	g.bandwidth = min(g.bandwidth, l.Node)
	return g
}

// gather is the time in which every rank has all of so many bytes, of which each has a part
// before: an all-gather. It is that of a reduce-scatter, too.
func (g group) gather(bytes float64) float64 {
	if g.ranks < 2 {
		return 0
	}
	steps := g.ranks - 1
	between := g.nodes - 1
	return ncclBase + (steps-between)*ringNode + between*netStep + steps/g.ranks*bytes/g.bandwidth
}

// reduce is the time of an all-reduce of so many bytes: by a ring, or a tree where that is faster.
func (g group) reduce(bytes float64) float64 {
	if g.ranks < 2 {
		return 0
	}
	steps, between := 2*(g.ranks-1), 0.0
	if g.nodes > 1 {
		between = 2 * g.nodes
	}
	between = min(between, steps)
	ring := ncclBase + (steps-between)*ringNode + between*netStep + steps/g.ranks*bytes/g.bandwidth
	tree := ncclBase + 2*((g.ranks/g.nodes-1)*treeNode+math.Log2(g.nodes)*netStep) + 2*bytes/(treeShare*g.bandwidth)
	return min(ring, tree)
}

// broadcast is the time in which every rank has the bytes of one.
func (g group) broadcast(bytes float64) float64 {
	if g.ranks < 2 {
		return 0
	}
	return ncclBase + (g.ranks-g.nodes)*ringNode + (g.nodes-1)*netStep + bytes/g.bandwidth
}
