package techniques

import "github.com/memplan/memplan/internal/tensor"

// ChannelsLast checks the models that Module.to converts to a channels-last format:
// tensors of another number of dimensions than the format's have none, and PyTorch
// refuses them.
func (j *Job) ChannelsLast() {
	if !j.Job.ChannelsLast {
		return
	}
	at := j.Spec.Train.ChannelsLast.At
	if j.Job.Parallel.FSDP != nil {
		j.fail(at, "channels_last does not go with parallel.fsdp, which divides row-major parameters only")
	}
	for _, m := range j.Job.Models {
		f := m.Formats()
		images, volumes := f[tensor.ChannelsLast2d], f[tensor.ChannelsLast3d]
		if images != "" && volumes != "" {
			j.fail(at, "channels_last: Module.to takes one memory format, but %s has four dimensions and %s five", images, volumes)
		}
	}
}
