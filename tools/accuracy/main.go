// Command accuracy holds predictions against recordings of real PyTorch and
// prints every case and a summary.
//
//	go run ./tools/accuracy            print
//	go run ./tools/accuracy -update    and commit the figures: testdata/accuracy.json, docs/accuracy.md, internal/aten/evidence.txt
//	go run ./tools/accuracy -pack      bring new recordings into the form in which files are kept
//
// It runs from the root of the repository. What fails if a figure is worse than committed is
// TestGate of internal/accuracy (make accuracy).
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/memplan/memplan/internal/accuracy"
	"github.com/memplan/memplan/internal/aten"
)

const (
	testdata  = "testdata"
	committed = "testdata/accuracy.json"
	page      = "docs/accuracy.md"
)

func main() {
	update := flag.Bool("update", false, "write the committed figures and "+page)
	packs := flag.Bool("pack", false, "rewrite recordings whose events are not in the form of files")
	flag.Parse()
	work := func() error { return run(*update) }
	if *packs {
		work = pack
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func run(update bool) error {
	r, err := accuracy.Run(testdata)
	if err != nil {
		return err
	}
	if update {
		err = write(r)
	}
	return errors.Join(r.Write(os.Stdout), err)
}

func write(r *accuracy.Results) error {
	text, err := json.MarshalIndent(r.Tallies(), "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(committed, append(text, '\n'), 0o644); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := r.WriteMarkdown(&b); err != nil {
		return err
	}
	if err := os.WriteFile(page, b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(aten.EvidenceFile, []byte(aten.WriteEvidence(r.Evidence())), 0o644)
}

func pack() error {
	files, err := accuracy.Files(testdata)
	if err != nil {
		return err
	}
	for _, f := range files {
		changed, err := accuracy.Pack(f)
		if err != nil {
			return err
		}
		if changed {
			fmt.Println(f)
		}
	}
	return nil
}
