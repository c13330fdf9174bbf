//go:build cuda

package cli

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/memplan/memplan/internal/needs"
)

// TestEmulatedGPU runs testdata/script/cuda on the emulated GPU, which MEMPLAN_LIBCUDA names.
func TestEmulatedGPU(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: needs.File(t, "script/cuda"), RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("MEMPLAN_LIBCUDA", os.Getenv("MEMPLAN_LIBCUDA"))
			e.Setenv("MEMPLAN_EMULATOR_MEMORY", "536870912")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": expectCode},
	})
}
