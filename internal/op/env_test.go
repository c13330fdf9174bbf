package op

import (
	"testing"

	"github.com/memplan/memplan/internal/torchver"
)

// TestWorkspaces: sizes of cuBLAS's and cuBLASLt's workspaces by release and GPU.
func TestWorkspaces(t *testing.T) {
	const small, large, lt = (4096*2 + 16*8) << 10, 32 << 20, 1 << 20
	for _, c := range []struct {
		minor, arch int
		handle, lt  int64
		transient   bool
	}{
		{6, 80, small, lt, false}, {6, 90, large, lt, false}, {11, 100, small, 0, false}, {10, 100, small, lt, false},
		{12, 100, large, 0, false}, {12, 120, large, 0, false}, {12, 110, small, 0, false}, {14, 110, small, 0, false},
		{15, 110, large, lt, true}, {15, 80, small, lt, true},
	} {
		e := Env{Arch: c.arch, Torch: torchver.Version{Major: 2, Minor: c.minor}}
		if e.CublasWorkspace() != c.handle || e.LtWorkspace() != c.lt || e.Torch.CublasWorkspaceTransient() != c.transient {
			t.Errorf("2.%d on sm_%d: %d bytes of cuBLAS, %d of cuBLASLt, transient %v", c.minor, c.arch, e.CublasWorkspace(), e.LtWorkspace(), e.Torch.CublasWorkspaceTransient())
		}
	}
}
