package torchver

import (
	"fmt"
	"strconv"
	"strings"
)

// cudnns lists the cuDNN that the wheels of a release for Linux load, by the CUDA
// version that they are built with, the one on PyPI first. Versions are as
// cudnnGetVersion says them: 91002 is 9.10.2.
var cudnns = []struct {
	torch  Version
	cuda   string
	cudnn  int
	source string
}{
	{Version{2, 6}, "cu124", 90100, "Requires-Dist: nvidia-cudnn-cu12==9.1.0.70"},
	{Version{2, 6}, "cu126", 90501, "generate_binary_build_matrix.py: 9.5.1.17"},
	{Version{2, 7}, "cu126", 90501, "generate_binary_build_matrix.py: 9.5.1.17"},
	{Version{2, 7}, "cu128", 90701, "PR 146717: 9.7.1.26"},
	{Version{2, 8}, "cu128", 91002, "Requires-Dist: nvidia-cudnn-cu12==9.10.2.21"},
	{Version{2, 8}, "cu126", 91002, "Requires-Dist: nvidia-cudnn-cu12==9.10.2.21"},
	{Version{2, 8}, "cu129", 91002, "PR 155576: 9.10.2.21"},
	{Version{2, 9}, "cu128", 91002, "Requires-Dist: nvidia-cudnn-cu12==9.10.2.21"},
	{Version{2, 9}, "cu126", 91002, "Requires-Dist: nvidia-cudnn-cu12==9.10.2.21"},
	{Version{2, 9}, "cu130", 91300, "PR 162268: 9.13.0.50"},
	{Version{2, 10}, "cu128", 91002, "Requires-Dist: nvidia-cudnn-cu12==9.10.2.21"},
	{Version{2, 10}, "cu126", 91002, "issue 169849: wheels of CUDA 12 are older than 9.15.1"},
	{Version{2, 10}, "cu130", 91501, "PR 171189: 9.15.1.9"},
	{Version{2, 11}, "cu130", 91900, "Requires-Dist: nvidia-cudnn-cu13==9.19.0.56"},
	{Version{2, 11}, "cu128", 91900, "Requires-Dist: nvidia-cudnn-cu12==9.19.0.56"},
	{Version{2, 11}, "cu126", 91002, "assumed: 9.11 ends Volta, which wheels of CUDA 12.6 keep (PR 172680)"},
	{Version{2, 12}, "cu130", 92000, "Requires-Dist: nvidia-cudnn-cu13==9.20.0.48"},
	{Version{2, 12}, "cu132", 92000, "assumed as with CUDA 13.0"},
	{Version{2, 12}, "cu126", 91002, "assumed as in 2.11"},
	{Version{2, 13}, "cu130", 92000, "Requires-Dist: nvidia-cudnn-cu13==9.20.0.48"},
	{Version{2, 13}, "cu132", 92000, "assumed as with CUDA 13.0"},
	{Version{2, 13}, "cu126", 91002, "assumed as in 2.11"},
	{Version{2, 14}, "cu130", 92400, "Requires-Dist: nvidia-cudnn-cu13==9.24.0.43"},
	{Version{2, 14}, "cu132", 92400, "assumed as with CUDA 13.0"},
	{Version{2, 14}, "cu126", 91002, "assumed as in 2.11"},
	{Version{2, 15}, "cu130", 92400, "assumed as in 2.14"},
}

// Cudnn is the cuDNN of the wheels of a release. Its text may name the build, as
// torch.__version__ does ("2.10.0+cu130"); without, and with a build that is not
// known, it is that of the wheel on PyPI.
func (v Version) Cudnn(text string) int {
	_, build, _ := strings.Cut(text, "+")
	usual := 0
	for _, w := range cudnns {
		if w.torch != v {
			continue
		}
		if w.cuda == build {
			return w.cudnn
		}
		if usual == 0 {
			usual = w.cudnn
		}
	}
	return usual
}

// Cudnns are those of the wheels on PyPI, by release.
func Cudnns() map[string]int {
	out := map[string]int{}
	for v := Oldest; Newest.AtLeast(v); v.Minor++ {
		out[v.String()] = v.Cudnn("")
	}
	return out
}

// ParseCudnn reads a version of cuDNN such as "9.10.2", or one with the wheel's fourth
// number.
func ParseCudnn(s string) (int, error) {
	parts := strings.Split(s, ".")
	var n [4]int
	if len(parts) < 2 || len(parts) > 4 {
		return 0, malformedCudnn(s)
	}
	for i, p := range parts {
		x, err := strconv.ParseUint(p, 10, 16)
		if err != nil || len(p) > 1 && p[0] == '0' || i < 3 && x > 99 {
			return 0, malformedCudnn(s)
		}
		n[i] = int(x)
	}
	if n[0] != 9 {
		return 0, malformedCudnn(s)
	}
	return n[0]*10000 + n[1]*100 + n[2], nil
}

func malformedCudnn(s string) error {
	return fmt.Errorf(`%q is not a version of cuDNN 9, such as "9.10.2"`, s)
}

// CudnnName is a version of cuDNN as people write it.
func CudnnName(n int) string { return fmt.Sprintf("%d.%d.%d", n/10000, n/100%100, n%100) }
