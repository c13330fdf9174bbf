package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The part of the OCI image format that an image of one layer needs.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Platform    *platform         `json:"platform,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	platform struct {
		Arch string `json:"architecture"`
		OS   string `json:"os"`
	}
	index struct {
		Schema      int               `json:"schemaVersion"`
		MediaType   string            `json:"mediaType"`
		Manifests   []descriptor      `json:"manifests"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	manifest struct {
		Schema    int          `json:"schemaVersion"`
		MediaType string       `json:"mediaType"`
		Config    descriptor   `json:"config"`
		Layers    []descriptor `json:"layers"`
	}
	imageConfig struct {
		Created time.Time     `json:"created"`
		Arch    string        `json:"architecture"`
		OS      string        `json:"os"`
		Config  imageRun      `json:"config"`
		RootFS  imageRootFS   `json:"rootfs"`
		History []imageChange `json:"history"`
	}
	imageRun struct {
		User       string
		Entrypoint []string
		WorkingDir string
		Labels     map[string]string
	}
	imageRootFS struct {
		Type  string   `json:"type"`
		Diffs []string `json:"diff_ids"`
	}
	imageChange struct {
		Created   time.Time `json:"created"`
		CreatedBy string    `json:"created_by"`
	}
)

const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"

	imageUser = "65532:65532" // of no user of the image
	imageWork = "/work"       // to mount the specs at
)

// A layout is an OCI image layout, a folder of blobs that are called by their hashes.
type layout struct{ dir string }

// writeImage writes an image of nothing but the binary for Linux's targets, dist/image.
func writeImage(d *dist) error {
	l := layout{filepath.Join(d.dir, "image")}
	if err := os.MkdirAll(filepath.Join(l.dir, "blobs", "sha256"), 0o755); err != nil {
		return err
	}
	legal, err := d.legal()
	if err != nil {
		return err
	}
	labels := map[string]string{
		"org.opencontainers.image.title":       "memplan",
		"org.opencontainers.image.description": description,
		"org.opencontainers.image.source":      source,
		"org.opencontainers.image.licenses":    licence,
		"org.opencontainers.image.version":     d.version,
		"org.opencontainers.image.revision":    d.commit,
		"org.opencontainers.image.created":     d.date.Format(time.RFC3339),
	}
	all := index{Schema: 2, MediaType: mediaIndex, Annotations: labels}
	for _, t := range targets {
		if t.os != "linux" {
			continue
		}
		m, err := l.image(d, t, legal, labels)
		if err != nil {
			return err
		}
		all.Manifests = append(all.Manifests, m)
	}
	top, err := l.json(mediaIndex, all)
	if err != nil {
		return err
	}
	top.Annotations = map[string]string{"org.opencontainers.image.ref.name": d.version}
	if err := writeJSON(filepath.Join(l.dir, "index.json"), index{Schema: 2, MediaType: mediaIndex, Manifests: []descriptor{top}}); err != nil {
		return err
	}
	return writeJSON(filepath.Join(l.dir, "oci-layout"), map[string]string{"imageLayoutVersion": "1.0.0"})
}

// image adds the image of one target.
func (l layout) image(d *dist, t target, legal map[string][]byte, labels map[string]string) (descriptor, error) {
	binary, err := os.ReadFile(d.binaries[t])
	if err != nil {
		return descriptor{}, err
	}
	files := tarball(d.date, binary, legal)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(files); err != nil {
		return descriptor{}, err
	}
	if err := z.Close(); err != nil {
		return descriptor{}, err
	}
	layer, err := l.blob(mediaLayer, packed.Bytes())
	if err != nil {
		return descriptor{}, err
	}
	config, err := l.json(mediaConfig, imageConfig{
		Created: d.date, Arch: t.arch, OS: t.os,
		Config:  imageRun{imageUser, []string{"/memplan"}, imageWork, labels},
		RootFS:  imageRootFS{"layers", []string{digest(files)}},
		History: []imageChange{{d.date, "memplan " + d.version}},
	})
	if err != nil {
		return descriptor{}, err
	}
	m, err := l.json(mediaManifest, manifest{2, mediaManifest, config, []descriptor{layer}})
	m.Platform = &platform{t.arch, t.os}
	return m, err
}

// tarball is the one layer: the binary, its licences, a folder to work in.
func tarball(date time.Time, binary []byte, legal map[string][]byte) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(name string, kind byte, mode int64, text []byte) {
		h := &tar.Header{Name: name, Typeflag: kind, Mode: mode, Size: int64(len(text)), ModTime: date, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			panic(err) // a bytes.Buffer takes everything
		}
		w.Write(text)
	}
	add("memplan", tar.TypeReg, 0o755, binary)
	add("licenses/", tar.TypeDir, 0o755, nil)
	names := make([]string, 0, len(legal))
	for name := range legal {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		add("licenses/"+name, tar.TypeReg, 0o644, legal[name])
	}
	add(imageWork[1:]+"/", tar.TypeDir, 0o755, nil)
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func (l layout) json(media string, v any) (descriptor, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.blob(media, text)
}

func (l layout) blob(media string, content []byte) (descriptor, error) {
	d := descriptor{MediaType: media, Digest: digest(content), Size: len(content)}
	return d, os.WriteFile(l.path(d), content, 0o644)
}

// path is where the blob lies.
func (l layout) path(d descriptor) string {
	return filepath.Join(l.dir, "blobs", "sha256", d.Digest[len("sha256:"):])
}

func digest(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }
