package cuda

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUncompiled: the driver has kept code where its cache may have some.
func TestUncompiled(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	check := func(want bool, when string) {
		t.Helper()
		if got := Uncompiled(); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	t.Setenv("CUDA_CACHE_DISABLE", "0")
	t.Setenv("CUDA_CACHE_PATH", "")
	check(true, "no cache")
	cache := filepath.Join(home, ".nv", "ComputeCache")
	if err := os.MkdirAll(filepath.Join(cache, "0"), 0o700); err != nil {
		t.Fatal(err)
	}
	check(false, "a cache")
	t.Setenv("CUDA_CACHE_PATH", t.TempDir())
	check(true, "an empty cache elsewhere")
	t.Setenv("CUDA_CACHE_PATH", cache)
	check(false, "a cache elsewhere")
	t.Setenv("CUDA_CACHE_DISABLE", "1")
	check(true, "no cache is used")
}
