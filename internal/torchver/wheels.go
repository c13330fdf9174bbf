package torchver

// blackwellWheels is the first release whose wheels have kernels for sm_100 and
// sm_120.
var blackwellWheels = change(Change{
	Since: Version{2, 7}, Area: wheels,
	What:   "The wheels have kernels for sm_100 and sm_120.",
	Source: "torch.cuda.get_arch_list() of 2.7.0+cu128; that of 2.6.0 ends with sm_90", Held: "internal/estimate TestGPUNotes",
})

// FirstWheelsFor returns the first release, from Oldest on, whose wheels run on
// a compute capability (times ten). A GPU runs kernels of its own generation
// (8.9 those of 8.0 and 8.6), so only a new generation needs new ones.
func FirstWheelsFor(arch int) Version {
	if arch >= 100 {
		return blackwellWheels.Since
	}
	return Oldest
}

// WheelsRunOn reports whether the wheels of a release run on a compute
// capability (times ten).
func (v Version) WheelsRunOn(arch int) bool { return v.AtLeast(FirstWheelsFor(arch)) }
