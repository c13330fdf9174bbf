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
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) == 3 && f[0] == "MemAvailable:" && f[2] == "kB" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return tensor.Bytes(n) * tensor.KiB, err == nil
		}
	}
	return 0, false
}
