package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"slices"
	"testing"

	gomodule "golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"

	"github.com/memplan/memplan/internal/needs"
)

// TestModule: what go get and go install fetch of this commit is small, and holds
// no recordings: testdata and tools/gpu are modules of their own.
func TestModule(t *testing.T) {
	const most = 5_000_000 // a fifth are the kernels of the GPU
	top := needs.Clone(t)
	var b bytes.Buffer
	if err := modzip.CreateFromVCS(&b, gomodule.Version{Path: "github.com/memplan/memplan", Version: "v0.0.0"}, top, "HEAD", ""); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", b.Len())
	if b.Len() <= most {
		return
	}
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(z.File, func(a, b *zip.File) int { return cmp.Compare(b.CompressedSize64, a.CompressedSize64) })
	t.Errorf("the module takes %d bytes, more than %d; the largest files:", b.Len(), most)
	for _, f := range z.File[:10] {
		t.Errorf("%8d %s", f.CompressedSize64, f.Name)
	}
}
