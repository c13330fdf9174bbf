package estimate

import (
	"errors"
	"testing"

	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/spec/spectest"
)

// No table of GPUs makes memplan panic: it has mistakes, or jobs are estimated on
// each of its GPUs.
func FuzzGPUs(f *testing.F) {
	tables := [][]byte{
		[]byte("- {name: lab-card, memory: 20GiB, arch: 8.9, sms: 60}\n- {name: odd, memory: 20GiB, arch: sm_81, sms: 60}\n- name: t4\n  memory: 8GiB\n  arch: sm_75\n  sms: 40\n  context: 300MiB\n"),
		[]byte("- {name: a, memory: 8GiB}\n- {name: A, memory: 8GiB, arch: 80, sms: 0}\n- {nmae: b, memory: 8GiB, arch: 80, sms: 2}\n"),
		[]byte("- {name: x, memory: 8191PiB, arch: 9.0, sms: 1024, context: 0}\n"), []byte("- {name: x, memory: 1, arch: 5.0, sms: 1, context: 9GiB}\n"),
		[]byte("[]"), []byte("- null"), []byte("- []"), []byte("- \n"), []byte("&a [*a]"), []byte("- {name: [], memory: {}, arch: null, sms: }"),
	}
	for _, t := range tables {
		f.Add(t)
	}
	mutator := spectest.New(tables)
	for seed := range uint64(300) {
		text, err := mutator.YAML(spectest.Source(seed), tables[seed%4])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		gpus, err := spec.ParseGPUs("gpus.yaml", text)
		wrong := (*spec.Errors)(nil)
		if err != nil {
			if !errors.As(err, &wrong) || wrong.Error() == "" {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		for _, g := range gpus {
			r := &Recipe{Path: "a.yaml", Text: []byte("memplan: 1\nmodel: {inputs: {x: [4]}, layers: [{Linear: 4}], loss: mean}\n"), Options: spec.Options{
				GPUs: gpus, Flags: []spec.Flag{{Flag: "--gpu", Path: "device.gpu", Value: g.Name.V, Text: true}},
			}}
			j, err := r.Job()
			if err != nil {
				if !errors.As(err, &wrong) || wrong.Error() == "" {
					t.Fatalf("%T: %v", err, err)
				}
				continue
			}
			o, err := Run(j)
			if err != nil {
				t.Fatal(err)
			}
			if rep := o.Report(); rep.Verdict.Fits == (rep.Device.UsableBytes <= 0) {
				t.Errorf("%d bytes are usable and the verdict is %s:\n%s", rep.Device.UsableBytes, rep.Verdict.Result, text)
			}
			return
		}
	})
}
