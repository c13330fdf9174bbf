package allocsim

import "github.com/memplan/memplan/internal/tensor"

// Quantity is what a Stat counts: bytes or things.
type Quantity interface{ tensor.Bytes | int64 }

// Stat follows one quantity over time, as torch.cuda.memory_stats does.
type Stat[Q Quantity] struct {
	Current   Q `json:"current"`
	Peak      Q `json:"peak"`      // the most since the start or the last ResetPeaks
	Allocated Q `json:"allocated"` // the sum of all increases
	Freed     Q `json:"freed"`     // the sum of all decreases
}

func (s *Stat[Q]) add(n Q) {
	s.Current += n
	s.Allocated += n
	if s.Current > s.Peak {
		s.Peak = s.Current
	}
}

func (s *Stat[Q]) sub(n Q) {
	s.Current -= n
	s.Freed += n
}

// PoolStat is a Stat of everything, of the small pools and of the large ones.
type PoolStat[Q Quantity] struct {
	All   Stat[Q] `json:"all"`
	Small Stat[Q] `json:"small"`
	Large Stat[Q] `json:"large"`
}

func (p *PoolStat[Q]) of(pool uint8) *Stat[Q] {
	if pool == smallPool {
		return &p.Small
	}
	return &p.Large
}

func (p *PoolStat[Q]) add(pool uint8, n Q) {
	p.All.add(n)
	p.of(pool).add(n)
}

func (p *PoolStat[Q]) sub(pool uint8, n Q) {
	p.All.sub(n)
	p.of(pool).sub(n)
}

// change adds a positive or negative net amount; zero leaves even the peak
// alone.
func (p *PoolStat[Q]) change(pool uint8, n Q) {
	switch {
	case n > 0:
		p.add(pool, n)
	case n < 0:
		p.sub(pool, -n)
	}
}

// Stats are the statistics of an allocator, with the names and meanings of
// torch.cuda.memory_stats.
type Stats struct {
	AllocatedBytes     PoolStat[tensor.Bytes] `json:"allocated_bytes"`      // of blocks handed out
	ReservedBytes      PoolStat[tensor.Bytes] `json:"reserved_bytes"`       // of segments, that is taken from the device
	ActiveBytes        PoolStat[tensor.Bytes] `json:"active_bytes"`         // of blocks handed out or pending
	InactiveSplitBytes PoolStat[tensor.Bytes] `json:"inactive_split_bytes"` // of cached blocks that share a segment; none in expandable segments
	RequestedBytes     PoolStat[tensor.Bytes] `json:"requested_bytes"`      // what the active blocks were asked for

	Allocation    PoolStat[int64] `json:"allocation"`     // blocks handed out
	Segment       PoolStat[int64] `json:"segment"`        // cudaMalloc segments; expandable ones do not count
	Active        PoolStat[int64] `json:"active"`         // blocks handed out or pending
	InactiveSplit PoolStat[int64] `json:"inactive_split"` // cached blocks that share a segment

	OversizeAllocations Stat[int64] `json:"oversize_allocations"` // blocks handed out of at least max_split_size
	OversizeSegments    Stat[int64] `json:"oversize_segments"`    // segments of at least max_split_size

	NumAllocRetries   int64 `json:"num_alloc_retries"`    // attempts after the whole cache was released
	NumOOMs           int64 `json:"num_ooms"`             // requests that failed
	NumSyncAllStreams int64 `json:"num_sync_all_streams"` // times that all pending events were waited for
	NumDeviceAlloc    int64 `json:"num_device_alloc"`     // cudaMalloc calls, or ranges mapped
	NumDeviceFree     int64 `json:"num_device_free"`      // cudaFree calls, or ranges unmapped
}

// bytes lists the statistics of bytes, for what must touch every one of them.
func (s *Stats) bytes() [5]*PoolStat[tensor.Bytes] {
	return [...]*PoolStat[tensor.Bytes]{
		&s.AllocatedBytes, &s.ReservedBytes, &s.ActiveBytes, &s.InactiveSplitBytes, &s.RequestedBytes,
	}
}

// counts lists the statistics of things that have pools.
func (s *Stats) counts() [4]*PoolStat[int64] {
	return [...]*PoolStat[int64]{&s.Allocation, &s.Segment, &s.Active, &s.InactiveSplit}
}

// resetPeaks sets every peak to the current value.
func (s *Stats) resetPeaks() {
	for _, p := range s.bytes() {
		for _, v := range [...]*Stat[tensor.Bytes]{&p.All, &p.Small, &p.Large} {
			v.Peak = v.Current
		}
	}
	for _, p := range s.counts() {
		for _, v := range [...]*Stat[int64]{&p.All, &p.Small, &p.Large} {
			v.Peak = v.Current
		}
	}
	s.OversizeAllocations.Peak = s.OversizeAllocations.Current
	s.OversizeSegments.Peak = s.OversizeSegments.Current
}

// raisePeaks sets every peak to at least that of o.
func (s *Stats) raisePeaks(o *Stats) {
	ob, oc := o.bytes(), o.counts()
	for i, p := range s.bytes() {
		p.All.Peak = max(p.All.Peak, ob[i].All.Peak)
		p.Small.Peak = max(p.Small.Peak, ob[i].Small.Peak)
		p.Large.Peak = max(p.Large.Peak, ob[i].Large.Peak)
	}
	for i, p := range s.counts() {
		p.All.Peak = max(p.All.Peak, oc[i].All.Peak)
		p.Small.Peak = max(p.Small.Peak, oc[i].Small.Peak)
		p.Large.Peak = max(p.Large.Peak, oc[i].Large.Peak)
	}
	s.OversizeAllocations.Peak = max(s.OversizeAllocations.Peak, o.OversizeAllocations.Peak)
	s.OversizeSegments.Peak = max(s.OversizeSegments.Peak, o.OversizeSegments.Peak)
}
