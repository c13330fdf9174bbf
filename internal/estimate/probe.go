package estimate

import (
	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/tensor"
)

// Probed is what a search wants to know of a job. All of it is nothing where the
// model refuses the job, or a size overflows.
type Probed struct {
	Fits   bool
	Tight  bool // fits only after cached memory is given back
	Usable tensor.Bytes
	// Reserved is at the peak, without a limit; of a job that is Over it is not known
	// but that it is more than Usable.
	Reserved tensor.Bytes
	Over     bool
}

// Leaves reports whether a share of the usable memory is left of what is reserved without a limit.
func (p Probed) Leaves(share float64) bool {
	left := p.Usable - p.Reserved
	return p.Fits && !p.Over && left >= 0 && float64(left) >= share*float64(p.Usable)
}

// depends reports whether the allocator does something else where there is less
// memory, before a request is refused.
func (m *Machine) depends() bool {
	return m.Fraction != nil || m.Conf.MemoryFraction != nil || m.Conf.GarbageCollectionThreshold > 0
}

// unhindered reports whether the device's capacity changed nothing: no request was
// refused, and nothing that the allocator does depends on how much there is.
func (m *Machine) unhindered(on *allocsim.Result) bool {
	return len(on.OOMs) == 0 && on.Driver.Failures == 0 && on.Stats.NumAllocRetries == 0 && !m.depends()
}

// Probe says what Fits does, and what would be reserved without a limit.
func Probe(j *Job) (p Probed, err error) {
	if !j.Machine.depends() { // more than a request that fails is not asked for
		o, err := Try(j)
		if err != nil {
			return Probed{}, err
		}
		defer j.metered(&err)()
		return o.probed()
	}
	defer j.metered(&err)()
	o, err := play(j, j.steps())
	if err != nil {
		return Probed{}, err
	}
	return o.probe()
}

// Reserved is what a job would reserve at its peak without a limit.
func Reserved(j *Job) (n tensor.Bytes, err error) {
	defer j.metered(&err)()
	o, err := play(j, j.steps())
	if err != nil {
		return 0, err
	}
	return o.reserved()
}

// Probed is what Probe would say of a job that was run; false where that followed a leak,
// which Probe does not.
func (o *Outcome) Probed() (Probed, bool) {
	n := o.Free.PeakReserved.Reserved
	return Probed{Fits: o.Fits(), Tight: o.Job.Machine.tight(o.OnGPU, n), Usable: o.Job.Machine.Usable(), Reserved: n}, o.Played.Growth <= 0
}

func (o *Outcome) probe() (Probed, error) {
	if err := o.replayOnGPU(false); err != nil {
		return Probed{}, err
	}
	return o.probed()
}

// probed is what a job of which there is OnGPU comes to.
func (o *Outcome) probed() (Probed, error) {
	m, on := o.Job.Machine, o.OnGPU
	p := Probed{Fits: o.Fits(), Usable: m.Usable()}
	switch {
	case m.unhindered(on):
		p.Reserved = on.PeakReserved.Reserved
		return p, nil
	case m.depends():
	case !p.Fits || on.Stats.NumAllocRetries > 0: // what was refused first would have been given
		p.Over, p.Tight = true, p.Fits
		return p, nil
	}
	var err error
	p.Reserved, err = o.reserved()
	p.Tight = m.tight(on, p.Reserved)
	return p, err
}

func (o *Outcome) reserved() (tensor.Bytes, error) {
	free, err := o.Job.unlimited(o.Played)
	if err != nil {
		return 0, err
	}
	return free.PeakReserved.Reserved, nil
}
