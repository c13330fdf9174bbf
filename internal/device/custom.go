package device

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Custom returns a GPU that the table does not have. Its context is computed, as
// for a row without a measured one.
func Custom(display string, total tensor.Bytes, arch, sms int) *GPU {
	g := GPU{
		Name: "custom", Display: display, Arch: arch, SMs: sms, SMsSource: "given by the user",
		Total: Figure{Value: total, Low: total, High: total, Source: "given by the user"},
	}
	return &complete([]GPU{g})[0]
}

// ParseArch reads a compute capability, written sm_80, sm80, 80 or 8.0, and
// returns it times ten. A letter behind it (sm_90a) does not count. The error
// lists the architectures whose properties are known.
func ParseArch(s string) (int, error) {
	digits := strings.TrimLeft(strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "sm"), "_")
	digits = strings.TrimRight(digits, "af")
	if major, minor, ok := strings.Cut(digits, "."); ok {
		digits = major + minor
		if major == "" || len(minor) != 1 {
			digits = ""
		}
	}
	arch, err := strconv.Atoi(digits)
	if _, known := threadsPerSM[arch]; err != nil || !known {
		var names []string
		for _, a := range slices.Sorted(maps.Keys(threadsPerSM)) {
			names = append(names, fmt.Sprintf("sm_%d", a))
		}
		return 0, fmt.Errorf("unknown architecture %q; allowed are %s (or 8.0 for sm_80)", s, strings.Join(names, ", "))
	}
	return arch, nil
}
