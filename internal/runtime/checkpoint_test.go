package runtime

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
)

var errStopped = errors.New("stopped")

// A run that was stopped and resumed ends in the same bytes as one that was not.
func TestResume(t *testing.T) {
	const steps, stop = 5, 3
	gpt := []string{"params.vocab=128", "params.d=32", "params.heads=2", "params.layers=2", "params.seq=16", "params.ctx=16", "train.batch_size=2", "params.dropout=0.1"}
	for _, c := range []struct {
		name, preset string
		set          []string
	}{
		{"AdamW", "mlp", []string{"params.sizes=[32,64,10]", "train.optimizer=AdamW"}},
		{"running statistics, an average, steps left out", "resnet", []string{"params.img=32", "params.classes=10", "train.batch_size=4", "train.precision=amp-fp16", "train.ema={decay: 0.9}"}},
		{"dropout in checkpoints", "gpt", append([]string{"train.checkpoint=true"}, gpt...)},
		{"state in host memory", "gpt", append([]string{"offload={optimizer: true}", "train.optimizer=AdamW"}, gpt...)},
		{"SGD and a batch that stays", "lenet", []string{"train.batch_size=4", "data.input=static", "train.optimizer={SGD: {lr: 0.01, momentum: 0.9}}"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.preset != "mlp" {
				needs.Time(t, "executes a job several times")
			}
			run := func(o Options) (weights, state string, losses []float64, err error) {
				j := job(t, c.preset, c.set...)
				var w, s bytes.Buffer
				o.Device, o.Config, o.Steps, o.Poison = cpu.New(8*tensor.GiB), j.Machine.Conf, steps, true
				o.OnEnd = func(all *Weights) error { return all.WriteSafetensors(&w) }
				stops := o.OnStep != nil
				o.OnStep = func(p Progress) error {
					losses = append(losses, p.Loss)
					if !stops || p.Step < stop {
						return nil
					}
					if err := p.Save(&s); err != nil {
						return err
					}
					return errStopped
				}
				_, err = Run(context.Background(), j.Program, j.Machine.Env, o)
				return w.String(), s.String(), losses, err
			}
			whole, _, all, err := run(Options{Seed: 7})
			if err != nil {
				t.Fatal(err)
			}
			_, state, begin, err := run(Options{Seed: 7, OnStep: func(Progress) error { return nil }})
			if !errors.Is(err, errStopped) || len(begin) != stop {
				t.Fatalf("%d steps, %v", len(begin), err)
			}
			f, err := OpenSafetensors(strings.NewReader(state), int64(len(state)))
			if err != nil {
				t.Fatal(err)
			}
			from, err := NewCheckpoint(f)
			if err != nil {
				t.Fatal(err)
			}
			resumed, _, rest, err := run(Options{Resume: from})
			if err != nil {
				t.Fatal(err)
			}
			if resumed != whole {
				t.Error("the weights are other ones")
			}
			if len(rest) != steps-stop || rest[0] != all[stop] || rest[1] != all[stop+1] {
				t.Errorf("losses %v, want the end of %v", rest, all)
			}
		})
	}
}

// A checkpoint of another job is refused, and so is one of an optimizer that keeps state elsewhere.
func TestResumeRefused(t *testing.T) {
	save := func(set ...string) *Checkpoint {
		j := job(t, "mlp", append([]string{"params.sizes=[32,64,10]", "train.batch_size=4"}, set...)...)
		var s bytes.Buffer
		_, err := Run(context.Background(), j.Program, j.Machine.Env, Options{Device: cpu.New(tensor.GiB), Config: j.Machine.Conf, Steps: 2, OnStep: func(p Progress) error {
			s.Reset()
			return p.Save(&s)
		}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := OpenSafetensors(bytes.NewReader(s.Bytes()), int64(s.Len()))
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewCheckpoint(f)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, c := range []struct{ of, with, want string }{
		{"train.optimizer=AdamW", "train.optimizer=SGD", "the checkpoint is of another job: it has no memplan.block."},
		{"train.optimizer=SGD", "train.optimizer=AdamW", "it has no memplan.block."},
		{"train.optimizer=SGD", "params.sizes=[32,64,64,10]", "random numbers were drawn"},
		{"train.optimizer=SGD", "train.steps=2", "has done 2 steps, and is to do 2"},
		{"train.optimizer=SGD", "train.optimizer=LBFGS", "LBFGS keeps a history"},
		{"train.optimizer=SGD", "train.optimizer=PagedAdamW8bit", "PagedAdamW8bit keeps its state in managed memory"},
	} {
		j := job(t, "mlp", "params.sizes=[32,64,10]", "train.batch_size=4", "train.steps=4", c.with)
		_, err := Run(context.Background(), j.Program, j.Machine.Env, Options{
			Device: cpu.New(tensor.GiB), Config: j.Machine.Conf, Steps: int(j.Spec.Train.Steps.V), Resume: save(c.of),
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, with %s: %v, want %q", c.of, c.with, err, c.want)
		}
	}
}

// A run starts from the weights of a file; of those that share memory one is enough.
func TestInit(t *testing.T) {
	write := func(names ...string) *Safetensors {
		var list []stored
		for _, n := range names {
			list = append(list, stored{n, tensor.Float16, []int64{3, 4}, func() ([]byte, error) {
				return tensor.Encode(tensor.Float16, []float64{0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}), nil
			}})
		}
		var b bytes.Buffer
		if err := writeSafetensors(&b, nil, list); err != nil {
			t.Fatal(err)
		}
		f, err := OpenSafetensors(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, c := range []struct {
		names []string
		want  string // of the error
	}{
		{[]string{"table"}, ""},
		{[]string{"head.weight"}, ""},
		{[]string{"table", "head.weight"}, ""},
		{nil, "the file has no head.weight"},
		{[]string{"table", "body"}, "the model has no body"},
	} {
		j, err := parsed("tied.yaml", tied)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Run(context.Background(), j.Program, j.Machine.Env, Options{
			Device: cpu.New(tensor.GiB), Config: j.Machine.Conf, Steps: 1, Init: write(c.names...),
			OnEnd: func(w *Weights) error {
				for _, name := range w.Names() {
					if v, err := w.Read(name); err != nil || v[0] != 0.5 || v[11] != 11 {
						t.Errorf("%v: %s is %v (%v)", c.names, name, v, err)
					}
				}
				return nil
			},
		})
		if got := ""; err != nil {
			got = err.Error()
			if c.want == "" || !strings.HasSuffix(got, c.want) {
				t.Errorf("%v: %v, want %q", c.names, err, c.want)
			}
		} else if c.want != "" {
			t.Errorf("%v: no error, want %q", c.names, c.want)
		}
	}
}

// What is no safetensors is an error, and nothing is read beyond the file.
func FuzzOpenSafetensors(f *testing.F) {
	file := func(header string, data int) []byte {
		return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), make([]byte, data)...)
	}
	f.Add(file(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}`, 24))
	f.Add(file(`{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}`, 8))
	f.Add(file(`{"a":{"dtype":"F8","shape":[-1],"data_offsets":[5,4]}}`, 8))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := OpenSafetensors(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, name := range s.Names() {
			d, shape, data, ok, err := s.Bytes(name)
			n := d.Size()
			for _, k := range shape {
				n *= k
			}
			if !ok || err != nil || n != int64(len(data)) || len(data) > len(b) {
				t.Errorf("%q: shape %v of %v in %d bytes, %v", name, shape, d, len(data), err)
			}
		}
		_, _ = NewCheckpoint(s)
	})
}
