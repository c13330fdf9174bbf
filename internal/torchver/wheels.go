package torchver

// blackwellWheels is the first release whose wheels have kernels for sm_100 and
// sm_120: torch.cuda.get_arch_list() of 2.7.0+cu128 has them, and that of 2.6.0
// (sm_50 to sm_90) has not.
var blackwellWheels = Version{2, 7}

// FirstWheelsFor returns the first release, from Oldest on, whose wheels run on
// a compute capability (times ten). A GPU runs kernels of its own generation
// (8.9 those of 8.0 and 8.6), so only a new generation needs new ones.
func FirstWheelsFor(arch int) Version {
	if arch >= 100 {
		return blackwellWheels
	}
	return Oldest
}

// WheelsRunOn reports whether the wheels of a release run on a compute
// capability (times ten).
func (v Version) WheelsRunOn(arch int) bool { return v.AtLeast(FirstWheelsFor(arch)) }
