// Command fuzztruth makes random specs, runs the PyTorch scripts that they
// mean, and keeps what the real allocator did beside each spec.
//
//	go run ./tools/fuzztruth -seed 1 -n 100 -python "python3" -out testdata/fuzz/1.json.gz
//	go run ./tools/fuzztruth -out testdata/fuzz/ok.json.gz testdata/ok/*.yaml
//
// With -kind presets the specs are those that come with memplan, at random small
// sizes; with -kind names they say which value each name means; with -kind
// operators they are the jobs of gen_operators.go (-freeze 0 -steps 0 leaves them as
// they are). Specs that are given as arguments are run instead of random ones.
// The Python must have a CUDA build of PyTorch 2.6 and a GPU, real or virtual.
// The environment variable FAKE_GPU_ARCH tells a virtual one which GPU to be; a
// real one ignores it, so that recordings are only right for its own
// architecture. Scripts that PyTorch refuses are left out and counted.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	_ "embed"

	"github.com/memplan/memplan/internal/accuracy"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/exporttorch"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchrun"
	"github.com/memplan/memplan/specs"
)

//go:embed record.py
var recorder string

// kinds are the generators of random specs.
var kinds = map[string]func(g *generator, seed uint64) (text, arch string){
	"programs":   (*generator).spec,
	"presets":    (*generator).preset,
	"optimizers": (*generator).optimizerJob,
	"checkpoint": (*generator).checkpointJob,
	"breadth":    (*generator).breadthJob,
	"last":       (*generator).lastJob,
	"calls":      calls,
	"adapted":    adapted,
	"options":    options,
	"ddp":        replicated,
	"allocator":  configured,
	"operators":  rareOperator,
	"carried":    (*generator).carriedJob,
	"statements": statements,
	"gradients":  gradients,
	"values":     values,
	"names":      named,
}

// steps are what each script runs.
const steps = 3

func main() {
	seed := flag.Uint64("seed", 1, "first seed")
	n := flag.Int("n", 100, "number of programs")
	python := flag.String("python", "python3", "command that runs Python with CUDA PyTorch")
	out := flag.String("out", "", "file to write (.json.gz); none: only compare")
	show := flag.Bool("show", false, "print the specs that differ")
	arch := flag.String("arch", "sm80", "architecture for given specs")
	freeze := flag.Float64("freeze", 0.2, "share of random programs in which some parameters are frozen")
	steps := flag.Float64("steps", 0.2, "share of random programs with techniques beside the step: evaluation, offloading, kept values")
	kind := flag.String("kind", "programs", "what to draw: "+strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	print := flag.Int64("print", -1, "print the spec of this seed and stop")
	flag.Parse()
	draw := func(seed uint64) (text, arch string) {
		text, arch = kinds[*kind](newGenerator(seed), seed)
		return maySteps(seed, mayFreeze(seed, text, arch, *freeze), arch, *steps), arch
	}
	if kinds[*kind] == nil {
		fmt.Fprintf(os.Stderr, "fuzztruth: unknown kind %q\n", *kind)
		os.Exit(2)
	}
	if *print >= 0 {
		text, arch := draw(uint64(*print))
		fmt.Printf("# arch %s\n%s", arch, text)
		return
	}
	if err := run(*seed, *n, *python, *out, *show, flag.Args(), *arch, draw); err != nil {
		fmt.Fprintln(os.Stderr, "fuzztruth:", err)
		os.Exit(1)
	}
}

func run(seed uint64, n int, python, out string, show bool, specFiles []string, arch string, draw func(seed uint64) (text, arch string)) error {
	dir, err := os.MkdirTemp(".", ".fuzztruth-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var cases []*accuracy.FuzzCase
	for _, f := range specFiles {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(f), ".yaml")
		cases = append(cases, &accuracy.FuzzCase{Name: name, Arch: arch, Spec: string(text)})
	}
	if len(specFiles) == 0 {
		for s := seed; s < seed+uint64(n); s++ {
			text, arch := draw(s)
			cases = append(cases, &accuracy.FuzzCase{Name: fmt.Sprintf("fuzz-%d", s), Arch: arch, Spec: text})
		}
	}
	for name, text := range map[string]string{"record.py": recorder, "standin.py": torchrun.StandIn} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	var kept []*accuracy.FuzzCase
	list, err := os.Create(filepath.Join(dir, "list.txt"))
	if err != nil {
		return err
	}
	w := bufio.NewWriter(list)
	for _, c := range cases {
		conf, err := export(c, filepath.Join(dir, c.Name+".py"))
		if err != nil {
			fmt.Printf("%s: not exported: %v\n", c.Name, err)
			if show {
				fmt.Println(c.Spec)
			}
			continue
		}
		fmt.Fprintln(w, c.Arch, c.Name, conf)
		kept = append(kept, c)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	list.Close()
	args := strings.Fields(python)
	cmd := exec.Command(args[0], append(args[1:], "record.py", "list.txt")...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	if o, err := cmd.Output(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, o)
	}
	return compare(dir, kept, out, show)
}

func build(c *accuracy.FuzzCase) (*spec.Spec, *graph.Result, error) {
	s, err := spec.Parse(c.Name+".yaml", []byte(c.Spec), spec.Options{})
	if err != nil {
		return nil, nil, err
	}
	g, err := graph.Build(s, graph.Options{Env: accuracy.ArchEnv(c.Arch), Preset: specs.Preset, Presets: specs.Names()})
	return s, g, err
}

// accepts reports whether memplan plays a program.
func accepts(c *accuracy.FuzzCase) bool {
	_, g, err := build(c)
	if err != nil {
		return false
	}
	_, err = engine.Play(g.Job, accuracy.ArchEnv(c.Arch), nil, steps)
	return err == nil
}

func export(c *accuracy.FuzzCase, path string) (allocConf string, err error) {
	s, g, err := build(c)
	if err != nil {
		return "", err
	}
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return s.Device.AllocConf.V, exporttorch.Write(f, g.Job, exporttorch.Options{Steps: steps})
}

// compare reads the recordings, holds the predictions against them and keeps
// them.
func compare(dir string, cases []*accuracy.FuzzCase, out string, show bool) error {
	equal, refused, accepted := 0, 0, 0
	var kept []*accuracy.FuzzCase
	for _, c := range cases {
		b, err := os.ReadFile(filepath.Join(dir, c.Name+".json"))
		if err != nil {
			return err
		}
		var rec struct {
			accuracy.FuzzCase
			Error string
		}
		if err := json.Unmarshal(b, &rec); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if rec.Error != "" {
			refused++
			but := ""
			if accepts(c) {
				accepted++
				but = ", memplan does not"
			}
			fmt.Printf("%s: PyTorch refuses%s: %s\n", c.Name, but, rec.Error)
			if show && !strings.Contains(rec.Error, "inplace") {
				fmt.Println(c.Spec)
			}
			continue
		}
		c.Events, c.Steps, c.Torch = rec.Events, rec.Steps, rec.Torch
		kept = append(kept, c)
		diff, err := accuracy.CompareFuzz(c)
		if err != nil {
			diff = err.Error()
		}
		if diff == "" {
			equal++
			continue
		}
		fmt.Printf("%s (%s): %s\n", c.Name, c.Arch, diff)
		if show {
			fmt.Println(c.Spec)
		}
	}
	fmt.Printf("%d of %d equal, %d refused by PyTorch, %d of them not by memplan\n", equal, len(kept), refused, accepted)
	if out == "" {
		return nil
	}
	return accuracy.WriteFuzz(out, kept)
}
