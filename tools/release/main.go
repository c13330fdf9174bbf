// Command release makes of goreleaser's files what goreleaser does not make, and
// holds all of it against what a release promises: see docs/release.md.
//
//	go run ./tools/release notices FILE                the licences of what is linked into memplan
//	go run ./tools/release sbom BINARY FILE VERSION    the modules in a binary, in CycloneDX's JSON
//	go run ./tools/release wrap DIST                   packages of npm and Python, an OCI image
//	go run ./tools/release check DIST                  tests all of it on this machine
//	go run ./tools/release same DIST DIST              compares two builds
//	go run ./tools/release changes VERSION             the section of CHANGELOG.md
//
// It runs from the root of the repository.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	commands := map[string]struct {
		args int
		run  func(args []string) error
	}{
		"notices": {1, func(a []string) error { return writeNotices(a[0]) }},
		"sbom":    {3, func(a []string) error { return writeSBOM(a[0], a[1], a[2]) }},
		"wrap":    {1, func(a []string) error { return wrap(a[0]) }},
		"check":   {1, func(a []string) error { return check(a[0]) }},
		"same":    {2, func(a []string) error { return same(a[0], a[1]) }},
		"changes": {1, func(a []string) error { return printChanges(os.Stdout, a[0]) }},
	}
	if len(args) == 0 {
		return fmt.Errorf("what is to be done: notices, sbom, wrap, check, same or changes?")
	}
	c, ok := commands[args[0]]
	if !ok || len(args) != c.args+1 {
		return fmt.Errorf("wrong arguments: %q", args)
	}
	return c.run(args[1:])
}

// wrap makes all that is made of the binaries.
func wrap(dir string) error {
	d, err := openDist(dir)
	if err != nil {
		return err
	}
	for _, w := range []struct {
		folder string
		write  func(*dist) error
	}{{"npm", writeNPM}, {"pip", writeWheels}, {"image", writeImage}} {
		if err := os.RemoveAll(filepath.Join(d.dir, w.folder)); err != nil { // of another run
			return err
		}
		if err := w.write(d); err != nil {
			return err
		}
	}
	return nil
}
