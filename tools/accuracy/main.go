// Command accuracy holds predictions against recordings of real PyTorch and
// prints every case and a summary.
//
//	go run ./tools/accuracy            print
//	go run ./tools/accuracy -check     and fail if a figure is worse than committed
//	go run ./tools/accuracy -update    and commit the figures: testdata/accuracy.json, docs/accuracy.md, internal/aten/evidence.txt
//	go run ./tools/accuracy -pack      bring new recordings into the form in which files are kept
//
// It runs from the root of the repository.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/memplan/memplan/internal/accuracy"
	"github.com/memplan/memplan/internal/aten"
)

const (
	testdata  = "testdata"
	committed = "testdata/accuracy.json"
	page      = "docs/accuracy.md"
)

func main() {
	check := flag.Bool("check", false, "fail if a figure is worse than committed")
	update := flag.Bool("update", false, "write the committed figures and "+page)
	packs := flag.Bool("pack", false, "rewrite recordings whose events are not in the form of files")
	flag.Parse()
	work := func() error { return run(*check, *update) }
	if *packs {
		work = pack
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func run(check, update bool) error {
	r, err := accuracy.Run(testdata)
	if err != nil {
		return err
	}
	if err := r.WriteCases(os.Stdout); err != nil {
		return err
	}
	fmt.Println()
	if err := r.WriteMeasured(os.Stdout); err != nil {
		return err
	}
	fmt.Println()
	now := r.Tallies()
	if err := accuracy.WriteSummary(os.Stdout, now); err != nil {
		return err
	}
	if update {
		return write(r, now)
	}
	if !check {
		return nil
	}
	text, err := os.ReadFile(committed)
	if err != nil {
		return err
	}
	var was []accuracy.Tally
	if err := json.Unmarshal(text, &was); err != nil {
		return fmt.Errorf("%s: %w", committed, err)
	}
	if worse := accuracy.Worse(was, now); len(worse) > 0 {
		return fmt.Errorf("worse than %s:\n%s", committed, strings.Join(worse, "\n"))
	}
	listed, err := os.ReadFile(aten.EvidenceFile)
	if err != nil {
		return err
	}
	if string(listed) != aten.WriteEvidence(r.Evidence()) {
		return fmt.Errorf("%s is not what the recordings say: run go run ./tools/accuracy -update and look at the difference", aten.EvidenceFile)
	}
	return nil
}

func write(r *accuracy.Results, now []accuracy.Tally) error {
	text, err := json.MarshalIndent(now, "", "  ")
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
