//go:build unix

package spectest_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/spec/spectest"
)

var (
	count = flag.Int("mutants", 0, "try so many mutants, one at a time, and hold each to the bounds of CPU time and memory")
	first = flag.Uint64("first", 0, "seed of the first mutant")
	keep  = flag.String("keep", "", "folder for the mutants that are slow, large or break something")
)

// Bounds of a mutant in each command, whose limits are those of a check.
const (
	maxCPU  = 2 * time.Second
	maxHeap = 1 << 30
)

// inCI is how many mutants are tried by default: about a minute of one core.
const inCI = 800

// maxAllocated bounds what a mutant allocates in all, freed or not.
const maxAllocated = 8 << 30

// long is after how much time the test says which mutant it tries: go test ends it
// where it hangs, and does not.
const long = time.Minute

// breeder makes mutants of the corpus.
type breeder struct {
	samples []sample
	yaml    *spectest.Mutator
	json    *spectest.Mutator
}

func newBreeder(t testing.TB) *breeder {
	b := &breeder{samples: corpus(t)}
	var texts, configs [][]byte
	for _, s := range b.samples {
		texts = append(texts, s.text)
		if c := s.files["config.json"]; c != nil {
			configs = append(configs, c)
		}
	}
	b.yaml, b.json = spectest.New(texts), spectest.New(configs)
	return b
}

// breed makes a mutant of a sample; nil if the sample is no YAML.
func (b *breeder) breed(of int, r *rand.Rand) *mutant {
	s := &b.samples[of]
	m := &mutant{text: s.text, files: s.files, set: settings(s.text)}
	config := s.files["config.json"]
	if config == nil || r.IntN(2) == 0 {
		var err error
		if m.text, err = b.yaml.YAML(r, s.text); err != nil {
			return nil
		}
	}
	if config != nil && r.IntN(3) > 0 {
		changed, err := b.json.JSON(r, config)
		if err != nil {
			return nil
		}
		m.files = map[string][]byte{"config.json": changed}
	}
	if r.IntN(4) == 0 {
		m.set = append(m.set, flags[r.IntN(len(flags))])
	}
	return m
}

// flags are values of --set; some name what no spec has.
var flags = []string{
	"train.batch_size=3", "train.batch_size=1", "train.batch_size=null", "train.precision=amp-bf16", "train.precision=bf16", "train=null", "train.checkpoint=true", "train.optimizer=SGD", "train.optimizer=AdamW",
	"train.optimizer={Adam: {lr: [1]}}", "device.gpu=t4", "device={memory: 1GiB, arch: sm_80, sms: 8}", "device.memory=2MiB", "step=[]", "params.layers=3", "x.y.z=1", "mode=inference", "mode=no_grad",
	"train.grad_accumulation=4", "data={input: static}", "data.device_prefetch=true", "model.blocks=null", "train.steps=2", "train.loop=flat", "a=&a [*a]", "torch=2.1", "train.ema={decay: 0.9}",
	"lora={r: 4, targets: [\"*\"]}", "parallel={ddp: 2}", "parallel={fsdp: 2}", "freeze=[\"*\"]", "offload={optimizer: true}", "train.clip_grad_norm=1",
}

// settings returns the values of the "# set: key=value" lines at the top of a spec.
func settings(text []byte) []string {
	var out []string
	for line := range strings.Lines(string(text)) {
		s, ok := strings.CutPrefix(line, "# set: ")
		if !ok {
			break
		}
		out = append(out, strings.TrimRight(s, "\r\n"))
	}
	return out
}

// seeded makes the mutant of a seed.
func (b *breeder) seeded(seed uint64) (*mutant, string) {
	r := spectest.Source(seed)
	of := r.IntN(len(b.samples))
	return b.breed(of, r), b.samples[of].name
}

// try takes a mutant through its way; a panic becomes an error.
func try(m *mutant, done func()) (accepted bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return m.way(done)
}

// TestMutants tries mutants of every spec there is: none panics, or takes more
// than its bounds. Mutants are made of their seeds alone.
func TestMutants(t *testing.T) {
	b := newBreeder(t)
	if *count > 0 {
		sweep(t, b)
		return
	}
	n := inCI
	if testing.Short() {
		n /= 10
	}
	for seed := range uint64(n) {
		m, name := b.seeded(seed)
		if m == nil {
			continue
		}
		late := time.AfterFunc(long, func() { fmt.Fprintf(os.Stderr, "mutant %d of %s goes on:\n%s\n", seed, name, m) })
		before := allocated()
		_, err := try(m, func() {})
		late.Stop()
		if took := allocated() - before; took > maxAllocated {
			t.Errorf("mutant %d of %s allocates %d MiB:\n%s", seed, name, took>>20, m)
		}
		if err != nil {
			t.Errorf("mutant %d of %s: %v\n%s", seed, name, err, m)
		}
	}
}

// String is the mutant as it can be tried by hand, cut if it is long.
func (m *mutant) String() string {
	var b strings.Builder
	for _, s := range m.set {
		fmt.Fprintf(&b, "# set: %s\n", s)
	}
	for _, name := range []string{"config.json"} {
		if text, ok := m.files[name]; ok {
			fmt.Fprintf(&b, "# %s: %.4000s\n", name, text)
		}
	}
	fmt.Fprintf(&b, "%.8000s", m.text)
	return b.String()
}

func allocated() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.TotalAlloc
}

// sweep tries many mutants, each alone on one core, and holds them to the bounds.
// What it kept in -keep says which: SEED.yaml, and the reason.
func sweep(t *testing.T, b *breeder) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(limit.GCPercent)
	debug.SetMemoryLimit(int64(limit.CheckMemory))
	var accepted, tried int
	var slowest, biggest record
	watch := newWatch()
	for seed := *first; seed < *first+uint64(*count); seed++ {
		m, name := b.seeded(seed)
		if m == nil {
			continue
		}
		note(m, seed, "running", "running "+name)
		watch.begin(m, seed)
		took, before := time.Duration(0), cpu()
		ok, err := try(m, func() {
			now := cpu()
			took = max(took, now-before)
			before = now
		})
		heap := watch.end()
		tried++
		if ok {
			accepted++
		}
		if took > slowest.cpu {
			slowest = record{seed, took, heap}
		}
		if heap > biggest.heap {
			biggest = record{seed, took, heap}
		}
		why := ""
		switch {
		case err != nil:
			why = err.Error()
		case took > maxCPU || heap > maxHeap:
			why = fmt.Sprintf("takes %v of CPU time and %d MiB", took, heap>>20)
		default:
			continue
		}
		t.Errorf("mutant %d of %s: %s", seed, name, why)
		note(m, seed, fmt.Sprint(seed), why)
	}
	t.Logf("%d mutants from %d, %d accepted; slowest %v; biggest %v", tried, *first, accepted, slowest, biggest)
}

type record struct {
	seed uint64
	cpu  time.Duration
	heap uint64
}

func (r record) String() string {
	return fmt.Sprintf("%d (%v, %d MiB)", r.seed, r.cpu.Round(time.Millisecond), r.heap>>20)
}

// note writes a mutant to the folder of -keep.
func note(m *mutant, seed uint64, name, why string) {
	if *keep == "" {
		return
	}
	text := fmt.Sprintf("# seed %d: %s\n", seed, strings.ReplaceAll(why, "\n", "\n# "))
	for _, s := range m.set {
		text += "# --set " + s + "\n"
	}
	if c, ok := m.files["config.json"]; ok {
		text += "# config.json: " + strings.TrimSpace(string(c)) + "\n"
	}
	if err := os.WriteFile(filepath.Join(*keep, name+".yaml"), append([]byte(text), m.text...), 0o644); err != nil {
		panic(err)
	}
}

// watch looks at the heap while a mutant is tried, and ends the process before one
// takes the machine's memory or never ends.
type watch struct {
	mutant *mutant
	seed   uint64
	start  time.Duration
	most   uint64
	do     chan func()
}

func newWatch() *watch {
	w := &watch{do: make(chan func())}
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		for {
			select {
			case f := <-w.do:
				f()
			case <-tick.C:
				w.look()
			}
		}
	}()
	return w
}

// look takes a sample; several times the bounds are the end.
func (w *watch) look() {
	if w.mutant == nil {
		return
	}
	h := heap()
	w.most = max(w.most, h)
	if took := cpu() - w.start; w.most > 6*maxHeap || took > 300*maxCPU {
		why := fmt.Sprintf("holds %d MiB after %v of CPU time; given up", w.most>>20, took)
		note(w.mutant, w.seed, fmt.Sprint(w.seed), why)
		fmt.Printf("mutant %d %s\n", w.seed, why)
		buf := make([]byte, 1<<16)
		os.Stdout.Write(buf[:runtime.Stack(buf, true)])
		os.Exit(3)
	}
}

// heap is what objects take, dead ones among them until they are collected.
func heap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func (w *watch) begin(m *mutant, seed uint64) {
	if heap() > maxHeap/8 {
		runtime.GC() // of those before
	}
	w.run(func() { w.mutant, w.seed, w.start, w.most = m, seed, cpu(), 0 })
}

// end returns the most that was on the heap.
func (w *watch) end() (most uint64) {
	w.run(func() { w.look(); w.mutant, most = nil, w.most })
	return most
}

func (w *watch) run(f func()) {
	done := make(chan bool)
	w.do <- func() { f(); close(done) }
	<-done
}

// cpu is the time that the process had of all cores.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
