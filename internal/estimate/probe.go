package estimate

import (
	"github.com/memplan/memplan/internal/tensor"
)

// Probed is what a search wants to know of a job. All of it is nothing where the
// model refuses the job, or a size overflows.
type Probed struct {
	Fits     bool
	Tight    bool         // fits only after cached memory is given back
	Reserved tensor.Bytes // at the peak, without a limit
	Usable   tensor.Bytes
}

// unhindered reports whether the device's capacity changed nothing: no request was
// refused, and nothing that the allocator does depends on how much there is.
func (o *Outcome) unhindered() bool {
	m := o.Job.Machine
	return o.Fits() && o.OnGPU.Driver.Failures == 0 && o.OnGPU.Stats.NumAllocRetries == 0 &&
		m.Fraction == nil && m.Conf.MemoryFraction == nil && m.Conf.GarbageCollectionThreshold == 0
}

// Probe says what Fits does, and what would be reserved without a limit.
func Probe(j *Job) (p Probed, err error) {
	defer j.metered(&err)()
	o, err := play(j, int(j.Spec.Train.Steps.V))
	if err != nil {
		return Probed{}, err
	}
	if err := o.replayOnGPU(false); err != nil {
		return Probed{}, err
	}
	if o.Free = o.OnGPU; !o.unhindered() {
		if o.Free, err = j.unlimited(o.Played); err != nil {
			return Probed{}, err
		}
	}
	reserved := o.Free.PeakReserved.Reserved
	return Probed{o.Fits(), j.Machine.tight(o.OnGPU, reserved), reserved, j.Machine.Usable()}, nil
}
