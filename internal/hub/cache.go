package hub

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/memplan/memplan/internal/files"
)

// CacheFolder is where Hugging Face's libraries keep what they download, as the environment
// says; "" if it does not say so.
func CacheFolder(env func(name string) (string, bool)) string {
	for _, v := range []struct {
		name string
		tail []string
	}{
		{"HF_HUB_CACHE", nil}, {"HUGGINGFACE_HUB_CACHE", nil}, {"HF_HOME", []string{"hub"}},
		{"XDG_CACHE_HOME", []string{"huggingface", "hub"}}, {"HOME", []string{".cache", "huggingface", "hub"}}, {"USERPROFILE", []string{".cache", "huggingface", "hub"}},
	} {
		if dir, _ := env(v.name); filepath.IsAbs(dir) {
			return filepath.Join(append([]string{dir}, v.tail...)...)
		}
	}
	return ""
}

// cached reads the configuration of a model from the cache: that of the revision which refs/main
// names or, without one, of the only revision.
func (h *Hub) cached(name string) (*Configuration, error) {
	if h.Cache == "" || !IsName(name) {
		return nil, nil
	}
	dir := filepath.Join(h.Cache, "models--"+strings.ReplaceAll(name, "/", "--"))
	revision, err := files.Read(filepath.Join(dir, "refs", "main"), 256)
	hash := strings.TrimSpace(string(revision))
	if err != nil || !filepath.IsLocal(hash) {
		all, err := os.ReadDir(filepath.Join(dir, "snapshots"))
		if err != nil || len(all) != 1 {
			return nil, nil
		}
		hash = all[0].Name()
	}
	file := filepath.Join(dir, "snapshots", hash, "config.json")
	text, err := files.Read(file, files.MaxText)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &Configuration{name, text, file}, nil
}
