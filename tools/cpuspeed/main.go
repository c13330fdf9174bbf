// Command cpuspeed measures the processor time of a training step of memplan run
// --backend cpu and of the exported script in PyTorch without CUDA, one thread
// each, in turns, and prints a table.
//
//	go run ./tools/cpuspeed -python python3
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// job is what is measured, in so many steps beyond the first.
type job struct {
	name  string
	steps int
	args  []string
}

var jobs = []job{
	{"lenet, 64 images", 300, []string{"preset:lenet", "--batch-size", "64"}},
	{"resnet18, 32 images of 32 px", 20, []string{"preset:resnet", "--batch-size", "32", "--set", "params.img=32"}},
	{"resnet18, 8 images of 224 px", 6, []string{"preset:resnet", "--batch-size", "8"}},
	{"gpt, 256 wide, 4 layers, 8 times 256 tokens", 6, []string{"preset:gpt", "--batch-size", "8", "--precision", "fp32", "--set", "params.d=256", "--set", "params.heads=4",
		"--set", "params.layers=4", "--set", "params.seq=256", "--set", "params.ctx=256", "--set", "params.vocab=8192", "--set", "params.dropout=0.0"}},
	{"lstm, 16 times 64 tokens", 6, []string{"preset:lstm"}},
}

// used runs a command and returns the processor time that it took.
func used(c *exec.Cmd) time.Duration {
	if out, err := c.CombinedOutput(); err != nil {
		log.Fatalf("%v: %v\n%s", c, err, out)
	}
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime()
}

// cuda are the lines of a script that ask for a GPU.
var cuda = regexp.MustCompile(`(?m)^.*torch\.(cuda|backends\.cuda)\..*\n`)

// script is the exported job for PyTorch without CUDA.
func script(memplan string, j job, file string, steps int) {
	out, err := exec.Command(memplan, append([]string{"export", "torch"}, j.args...)...).Output()
	if err != nil {
		log.Fatal(j.name, ": ", err)
	}
	text := strings.ReplaceAll(cuda.ReplaceAllString(string(out), ""), `"cuda"`, `"cpu"`)
	text = regexp.MustCompile(`(?m)^for i in range\(1, \d+\):`).ReplaceAllString(text, fmt.Sprintf("torch.set_num_threads(1)\nfor i in range(%d):", steps))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}
}

func main() {
	log.SetFlags(0)
	memplan := flag.String("memplan", "bin/memplan", "the program")
	python := flag.String("python", "python3", "a Python with PyTorch")
	rounds := flag.Int("rounds", 3, "how often each is measured; the least counts")
	only := flag.String("only", "", "measure jobs with this in their name")
	flag.Parse()
	folder, err := os.MkdirTemp("", "cpuspeed")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	fmt.Println("| job | memplan, ms | PyTorch, ms | ratio |\n|---|---|---|---|")
	for _, j := range jobs {
		if !strings.Contains(j.name, *only) {
			continue
		}
		// A step is the difference between runs of 1+steps and of one.
		least := [2][2]time.Duration{}
		for range *rounds {
			for i, steps := range []int{1, 1 + j.steps} {
				file := filepath.Join(folder, "job.py")
				script(*memplan, j, file, steps)
				c := exec.Command(*memplan, append([]string{"run", "--backend", "cpu", "--steps", fmt.Sprint(steps)}, j.args...)...)
				c.Env = append(os.Environ(), "GOMAXPROCS=1")
				p := exec.Command(*python, file)
				p.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1")
				for k, c := range []*exec.Cmd{c, p} {
					if t := used(c); least[k][i] == 0 || t < least[k][i] {
						least[k][i] = t
					}
				}
			}
		}
		step := func(k int) float64 { return (least[k][1] - least[k][0]).Seconds() * 1000 / float64(j.steps) }
		fmt.Printf("| %s | %.1f | %.1f | %.2f |\n", j.name, step(0), step(1), step(0)/step(1))
	}
}
