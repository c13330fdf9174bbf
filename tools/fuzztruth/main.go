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
	"cmp"
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
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/record"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchrun"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/specs"
)

//go:embed record.py
var recorder string

//go:embed pretend.py
var pretender string

//go:embed library.py
var library string

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
	"fsdp":       sharded,
	"fsdp1":      flattened,
	"fsdp1_host": flattenedOnHost,
	"fsdp1_lora": flattenedAdapted,
	"fsdp_lora":  shardedAdapted,
	"deepspeed":  engined,
	"zero3":      divided,
	"tp":         tensorParallel,
	"tp_fsdp":    meshed,
	"pp":         pipelined,
	"pp_dp":      pipelinedCopies,
	"allocator":  configured,
	"operators":  rareOperator,
	"carried":    (*generator).carriedJob,
	"statements": statements,
	"gradients":  gradients,
	"values":     values,
	"names":      named,
	"attention":  attention,
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
	pretend := flag.String("pretend", "", "release of a PyTorch for CPUs, which runs the scripts on a pretended GPU")
	of := flag.String("of", "", "run the specs of recordings of testdata/fuzz, by the names of the files with commas between")
	differing := flag.String("differing", "", "run the cases of this file again that differ from the prediction, and keep what comes of them there")
	libraries := flag.Bool("library", false, "with -pretend, run the jobs of recordings of testdata/truth-hf and testdata/truth-trainer, given as files, with the libraries themselves")
	whole := flag.Bool("whole", false, "with -pretend, keep the events and not what stands for them")
	away := flag.String("away", "", "write scripts and what runs them to this folder and stop; there python3 record.py list.txt JOBS runs them on a real GPU")
	release := flag.String("release", "2.11", "with -away, the PyTorch there")
	back := flag.String("back", "", "hold the recordings against predictions that were made in this folder of -away")
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
	j := job{python: *python, out: *out, show: *show, pretend: *pretend, whole: *whole, away: *away, release: *release}
	var err error
	switch {
	case *back != "":
		err = j.back(*back)
	case *differing != "":
		err = j.differing(*differing)
	case *of != "":
		for _, name := range strings.Split(*of, ",") {
			if err = j.again(name); err != nil {
				break
			}
		}
	case *libraries:
		err = j.library(flag.Args())
	case flag.NArg() > 0:
		err = j.read(flag.Args(), *arch)
	default:
		j.draw(*seed, *n, draw)
	}
	if err == nil && *back == "" {
		err = j.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzztruth:", err)
		os.Exit(1)
	}
}

// job is what is run and how.
type job struct {
	python, out string
	pretend     string // the release
	whole, show bool
	away        string                     // the folder, and
	release     string                     // the PyTorch there
	configs     map[string]json.RawMessage // by case, of those that libraries run
	cases       []*accuracy.FuzzCase
	others      []*accuracy.FuzzCase // of the file out, in which the cases are kept
}

func (j *job) add(name, arch, text string) {
	c := &accuracy.FuzzCase{Name: name, Arch: arch, Spec: text, Torch: cmp.Or(j.pretend, "2.6"), Pretended: j.pretend != ""}
	if j.away != "" {
		c.Arch, c.Torch = "sm90", j.release
	}
	j.cases = append(j.cases, c)
}

// draw makes random specs.
func (j *job) draw(seed uint64, n int, draw func(seed uint64) (text, arch string)) {
	for s := seed; s < seed+uint64(n); s++ {
		text, arch := draw(s)
		j.add(fmt.Sprintf("fuzz-%d", s), arch, text)
	}
}

// read takes the specs of files.
func (j *job) read(files []string, arch string) error {
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		j.add(strings.TrimSuffix(filepath.Base(f), ".yaml"), arch, string(text))
	}
	return nil
}

// library takes the jobs of recordings, which libraries run.
func (j *job) library(files []string) error {
	j.configs = map[string]json.RawMessage{}
	for _, f := range files {
		c, config, err := accuracy.Library(f, j.pretend)
		if err != nil {
			return err
		}
		j.cases, j.configs[c.Name] = append(j.cases, c), config
	}
	return nil
}

// again takes the specs of recordings.
func (j *job) again(name string) error {
	cases, err := accuracy.ReadFuzz(filepath.Join("testdata/fuzz", name+".json.gz"))
	for _, c := range cases {
		j.add(name+"-"+strings.TrimPrefix(c.Name, "fuzz-"), c.Arch, c.Spec)
	}
	return err
}

// differing takes the cases of a file that are not as predicted.
func (j *job) differing(path string) error {
	all, err := accuracy.ReadFuzz(path)
	if err != nil {
		return err
	}
	var of []string
	for _, c := range all {
		switch diff, err := accuracy.CompareFuzz(c); {
		case err == nil && diff == "":
		case c.Of != "":
			of = append(of, filepath.Join("testdata", filepath.FromSlash(c.Of)+".json.gz"))
		default:
			j.add(c.Name, c.Arch, c.Spec)
		}
	}
	j.out, j.others = path, all
	if of == nil {
		return nil
	}
	return j.library(of)
}

func (j *job) run() error {
	dir, err := j.folder()
	if err != nil {
		return err
	}
	if j.away == "" {
		defer os.RemoveAll(dir)
	}
	script := "record.py"
	if j.pretend != "" {
		script = "pretend.py"
	}
	if j.configs != nil {
		script = "library.py"
	}
	versions, err := json.Marshal(torchver.Cudnns())
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"record.py": recorder, "pretend.py": pretender, "library.py": library, "recorder.py": record.Script(false), "standin.py": torchrun.StandIn, "cudnn.json": string(versions)} {
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
	for _, c := range j.cases {
		conf, err := j.write(c, filepath.Join(dir, c.Name))
		if err != nil {
			fmt.Printf("%s: not exported: %v\n", c.Name, err)
			if j.show {
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
	if j.away != "" {
		return accuracy.WriteFuzz(filepath.Join(dir, casesName), kept)
	}
	args := strings.Fields(j.python)
	cmd := exec.Command(args[0], append(args[1:], script, "list.txt")...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	if o, err := cmd.Output(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, o)
	}
	return j.compare(dir, kept)
}

// casesName is the file of a folder of -away that has the specs.
const casesName = "cases.json.gz"

func (j *job) folder() (string, error) {
	if j.away != "" {
		return j.away, os.MkdirAll(j.away, 0o755)
	}
	return os.MkdirTemp(".", ".fuzztruth-")
}

// back compares what was recorded elsewhere.
func (j *job) back(dir string) error {
	cases, err := accuracy.ReadFuzz(filepath.Join(dir, casesName))
	if err != nil {
		return err
	}
	ran := slices.DeleteFunc(cases, func(c *accuracy.FuzzCase) bool {
		_, err := os.Stat(filepath.Join(dir, c.Name+".json"))
		return err != nil
	})
	fmt.Printf("%d of %d were run\n", len(ran), len(cases))
	return j.compare(dir, ran)
}

func build(c *accuracy.FuzzCase) (*spec.Spec, *graph.Result, op.Env, error) {
	env, err := c.Env()
	if err != nil {
		return nil, nil, env, err
	}
	s, err := spec.Parse(c.Name+".yaml", []byte(c.Spec), spec.Options{})
	if err != nil {
		return nil, nil, env, err
	}
	g, err := graph.Build(s, graph.Options{Env: env, Preset: specs.Preset, Presets: specs.Names()})
	return s, g, env, err
}

// accepts reports whether memplan plays a program.
func accepts(c *accuracy.FuzzCase) bool {
	_, g, env, err := build(c)
	if err != nil {
		return false
	}
	_, err = engine.Play(g.Job, env, nil, steps)
	return err == nil
}

// write writes what runs a case: a script, or what a library is to do.
func (j *job) write(c *accuracy.FuzzCase, path string) (allocConf string, err error) {
	if j.configs != nil {
		return "", os.WriteFile(path+".config.json", j.configs[c.Name], 0o644)
	}
	return export(c, path+".py")
}

func export(c *accuracy.FuzzCase, path string) (allocConf string, err error) {
	s, g, env, err := build(c)
	if err != nil {
		return "", err
	}
	if err := engine.InferStages(nil, g.Job, env); err != nil {
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
func (j *job) compare(dir string, cases []*accuracy.FuzzCase) error {
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
			if j.show && !strings.Contains(rec.Error, "inplace") {
				fmt.Println(c.Spec)
			}
			continue
		}
		c.Events, c.Steps, c.Torch, c.GPU, c.Cudnn = rec.Events, rec.Steps, rec.Torch, rec.GPU, rec.Cudnn
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
		if j.show {
			fmt.Println(c.Spec)
		}
	}
	fmt.Printf("%d of %d equal, %d refused by PyTorch, %d of them not by memplan\n", equal, len(kept), refused, accepted)
	if j.out == "" {
		return nil
	}
	if j.pretend != "" && !j.whole {
		for _, c := range kept {
			c.Condense()
		}
	}
	if j.others != nil {
		kept = replaced(j.others, cases, kept)
	}
	return accuracy.WriteFuzz(j.out, kept)
}

// replaced are all cases with those in place that were run again; those that PyTorch refused are left out.
func replaced(all, run, kept []*accuracy.FuzzCase) (out []*accuracy.FuzzCase) {
	named := func(list []*accuracy.FuzzCase, name string) int {
		return slices.IndexFunc(list, func(c *accuracy.FuzzCase) bool { return c.Name == name })
	}
	for _, c := range all {
		if i := named(kept, c.Name); i >= 0 {
			out = append(out, kept[i])
		} else if named(run, c.Name) < 0 {
			out = append(out, c)
		}
	}
	return out
}
