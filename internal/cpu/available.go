package cpu

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Available is how much of host memory can be had without swapping, as
// Linux reckons it (MemAvailable, proc(5)). It is false where the system does not say.
func Available() (tensor.Bytes, bool) {
	n := said("/proc/meminfo", "MemAvailable:")
	return n, n > 0
}

// Taken is the most memory that this process had so far (VmHWM, proc(5)), 0 where the system
// does not say.
func Taken() tensor.Bytes { return said("/proc/self/status", "VmHWM:") }

// said is a line of a file of Linux such as "VmHWM: 1024 kB", 0 without one.
func said(file, name string) tensor.Bytes {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) == 3 && f[0] == name && f[2] == "kB" {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return tensor.Bytes(n) * tensor.KiB
			}
		}
	}
	return 0
}
