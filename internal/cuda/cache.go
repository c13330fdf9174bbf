package cuda

import (
	"os"
	"path/filepath"
)

// Uncompiled reports that the driver has surely kept no code of an earlier start: its
// cache is switched off, or there is nothing in it (CUDA C++ Programming Guide, CUDA
// Environment Variables).
func Uncompiled() bool {
	if os.Getenv("CUDA_CACHE_DISABLE") == "1" {
		return true
	}
	cache := os.Getenv("CUDA_CACHE_PATH")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return false
		}
		cache = filepath.Join(home, ".nv", "ComputeCache")
	}
	entries, err := os.ReadDir(cache)
	return os.IsNotExist(err) || err == nil && len(entries) == 0
}
