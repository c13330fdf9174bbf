package runtime

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// A checkpoint is a run between two steps: the weights by their names, every other block that
// lives by its number, and what of the run is in no block. To resume, the steps before are played
// again without computing anything, which gives each block its place; then its contents are those
// of the file.

// blockPrefix begins the names of blocks that are no weights.
const blockPrefix = "memplan.block."

// The metadata of a checkpoint.
const (
	metaStep   = "memplan_step"   // that was done last
	metaSeed   = "memplan_seed"   // of the run
	metaDraws  = "memplan_draws"  // how often random numbers were drawn
	metaFinite = "memplan_finite" // for each check of a GradScaler 1 if gradients were finite, else 0
)

// Checkpoint is a run that can go on.
type Checkpoint struct {
	Step int    // that was done last
	Seed uint64 // of the run

	file   *Safetensors
	draws  uint64
	finite string
}

// NewCheckpoint reads what a run saved.
func NewCheckpoint(f *Safetensors) (*Checkpoint, error) {
	c := &Checkpoint{file: f, finite: f.Metadata[metaFinite]}
	step, err := strconv.Atoi(f.Metadata[metaStep])
	if err != nil || step < 1 {
		return nil, errors.New("the file holds weights alone, and not the state of a run")
	}
	c.Step = step
	for _, n := range []struct {
		key string
		to  *uint64
	}{{metaSeed, &c.Seed}, {metaDraws, &c.draws}} {
		if *n.to, err = strconv.ParseUint(f.Metadata[n.key], 10, 64); err != nil {
			return nil, fmt.Errorf("%s: %w", n.key, err)
		}
	}
	return c, nil
}

// Resumable says why the state of a job is not all in its blocks.
func Resumable(prog *program.Job) error {
	for _, o := range prog.Optimizers {
		if o.Measures() {
			return fmt.Errorf("%s goes by the evaluations so far: its runs cannot be resumed", o.Scheduler.Row.Name)
		}
		if o.Row.Whole != nil {
			return fmt.Errorf("%s keeps a history beside the memory of the GPU: its runs cannot be resumed", o.Row.Name)
		}
		if o.Row.Managed != nil && slices.ContainsFunc(o.AllArgs(), o.Row.Managed) {
			return fmt.Errorf("%s keeps its state in managed memory: its runs cannot be resumed", o.Row.Name)
		}
	}
	return nil
}

// save writes a checkpoint.
func (x *Executor) save(w io.Writer, step int) error {
	list, held := x.weights.stored(), x.held()
	for _, a := range []*arena{&x.arena, &x.host} {
		for _, id := range a.ids() {
			b, n := a.blocks[id], id
			if a == &x.host {
				n = -n
			}
			if _, is := held[n]; is {
				continue
			}
			list = append(list, stored{blockName(n), tensor.Uint8, []int64{int64(b.bytes)}, func() ([]byte, error) {
				data := make([]byte, b.bytes)
				return data, a.device.Read(data, b.block.Address)
			}})
		}
	}
	return writeSafetensors(w, map[string]string{
		"format": "pt", metaStep: strconv.Itoa(step), metaSeed: strconv.FormatUint(x.seed, 10),
		metaDraws: strconv.FormatUint(x.random, 10), metaFinite: string(x.finite),
	}, list)
}

func blockName(id int32) string { return blockPrefix + strconv.Itoa(int(id)) }

// held are the blocks that weights fill, with the name of one.
func (x *Executor) held() map[int32]string {
	out := map[int32]string{}
	for _, name := range x.weights.names {
		t := x.weights.of[name]
		id := autograd.BlockOf(t)
		if _, is := out[id]; !is && t.IsContiguous() && t.Offset == 0 && t.Numel()*t.DType.Size() == int64(x.get(id).bytes) {
			out[id] = name
		}
	}
	return out
}

// restore fills the blocks that live, after the steps of the checkpoint were played.
func (x *Executor) restore() error {
	c := x.resume
	x.skip, x.resume = false, nil
	if x.random != c.draws {
		return fmt.Errorf("the checkpoint is of another job: %d random numbers were drawn up to its step, not %d", c.draws, x.random)
	}
	held, used := x.held(), map[string]bool{}
	for _, a := range []*arena{&x.arena, &x.host} {
		for _, id := range a.ids() {
			b, n := a.blocks[id], id
			if a == &x.host {
				n = -n
			}
			name, is := held[n]
			if !is {
				name = blockName(n)
			}
			_, _, data, ok, err := c.file.Bytes(name)
			switch {
			case err != nil:
				return err
			case !ok || tensor.Bytes(len(data)) != b.bytes:
				return fmt.Errorf("the checkpoint is of another job: it has no %s of %v", name, b.bytes)
			}
			if err := a.device.Write(b.block.Address, data); err != nil {
				return err
			}
			used[name] = true
		}
	}
	for _, name := range c.file.Names() {
		if strings.HasPrefix(name, blockPrefix) && !used[name] {
			return fmt.Errorf("the checkpoint is of another job: nothing lives here of its %s", name)
		}
	}
	return nil
}

// skipping is a device that gives out memory and, as long as it is told to, does nothing with it.
type skipping struct {
	Device
	skip *bool
}

func (d skipping) Write(to allocsim.Address, from []byte) error {
	if *d.skip {
		return nil
	}
	return d.Device.Write(to, from)
}

func (d skipping) Read(to []byte, from allocsim.Address) error {
	if *d.skip {
		return nil
	}
	return d.Device.Read(to, from)
}

func (d skipping) Set(at allocsim.Address, n tensor.Bytes, b byte) error {
	if *d.skip {
		return nil
	}
	return d.Device.Set(at, n, b)
}

func (d skipping) Launch(c *kernel.Call) error {
	if *d.skip {
		return nil
	}
	return d.Device.Launch(c)
}
