package program

import (
	"strconv"
	"strings"
)

// ChunkOf is the model chunk that a parameter is of.
func (m *Megatron) ChunkOf(path string) int {
	if m.Pipeline == nil {
		return 0
	}
	parts := strings.SplitN(path, ".", 3) // chunks.0.embedding
	k, err := strconv.Atoi(parts[1])
	if err != nil {
		panic("program: a parameter of a pipeline of Megatron is of no chunk: " + path)
	}
	return k
}

// MegatronPipeline is how a pipeline-parallel process of Megatron-core goes through its model
// chunks (megatron/core/pipeline_parallel/schedules.py). The children of the model's root are
// the chunks.
type MegatronPipeline struct {
	Ranks, Rank  int      // pipeline-parallel processes; the one that is planned
	Chunks       int      // of the model that this process has
	Microbatches int      // of a step
	Group        int      // microbatches in a row through one chunk
	Overlap      bool     // overlap_p2p_comm
	Flush        bool     // overlap_p2p_comm_warmup_flush
	Reduces      bool     // overlap_grad_reduce: all stages begin to reduce a chunk's gradients at once (align_grad_reduce)
	Sent         Boundary // what stages send to each other
	Loss         *Func    // forward_step_calc_loss(loss_mask, output_tensor); nil: another process computes the loss
	Scale        *Func    // grad_scale_func(loss)
	Auxiliary    *Func    // what scales auxiliary losses of experts, of a chunk's result or the loss; nil: there are none
	Inputs       []int    // of the batch: those that a chunk's forward takes, in its order; -1: None
	Mask         int      // which of Inputs is the attention mask
	LossMask     int      // the input of the batch that Loss takes
}

// First reports whether the process has the embedding, and Last whether it computes the loss.
func (p *MegatronPipeline) First() bool { return p.Rank == 0 }
func (p *MegatronPipeline) Last() bool  { return p.Rank == p.Ranks-1 }

// FirstChunk reports whether a chunk has the embedding, and LastChunk whether the loss is of
// its result.
func (p *MegatronPipeline) FirstChunk(k int) bool { return p.First() && k == 0 }
func (p *MegatronPipeline) LastChunk(k int) bool  { return p.Last() && k == p.Chunks-1 }

// Warmup is how many forward passes come before the first backward pass
// (get_pp_rank_microbatches).
func (p *MegatronPipeline) Warmup() int {
	n := p.Ranks - p.Rank - 1
	if p.Chunks > 1 {
		n = 2*n + (p.Chunks-1)*p.Group
	}
	return min(n, p.Microbatches*p.Chunks)
}

// Order is the chunk of each forward pass in order, and the microbatch
// (get_schedule_table); a backward pass is that of the chunk as far from the last.
func (p *MegatronPipeline) Order() (chunks, microbatches []int) {
	for first := 0; first < p.Microbatches; first += p.Group {
		for k := range p.Chunks {
			for m := first; m < min(first+p.Group, p.Microbatches); m++ {
				chunks, microbatches = append(chunks, k), append(microbatches, m)
			}
		}
	}
	return chunks, microbatches
}
