package report

import (
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/memplan/memplan/internal/tensor"
)

// planned is a report of a job that needs 10 GiB and 100 MiB of /dev/shm.
func planned() *Report {
	return &Report{
		Model: Model{Name: "My model: v2\n"}, Train: Train{BatchSize: 8},
		Device:      Device{DisplayName: "NVIDIA T4", TotalBytes: 15 * tensor.GiB, ContextBytes: 200 * tensor.MiB},
		Peak:        Peak{ReservedBytes: 10 * tensor.GiB},
		Host:        &Host{RequestBytes: 4 * tensor.GiB, SharedMemoryBytes: 100 * tensor.MiB, Phase: "training"},
		Verdict:     Verdict{Result: Fits, Fits: true},
		Uncertainty: Uncertainty{ReservedExpectedBytes: 10*tensor.GiB + 1, ContextHighBytes: 300 * tensor.MiB},
	}
}

// What is asked for is rounded up, and is what the report says with headroom.
func TestRequest(t *testing.T) {
	r := planned()
	// 10540 MiB + 1 B and 4096 MiB, times 1.05.
	if q := requestOf(r); q != (request{gpus: 1, gpu: 11068, host: 4301, shm: 105}) {
		t.Errorf("%+v", q)
	}
	r.Peak.ReservedBytes = 15 * tensor.GiB
	if q := requestOf(r); q.gpu != 15*1024 || !q.all {
		t.Errorf("more than the GPU has: %+v", q)
	}
	r.Verdict.Fits, r.Host = false, nil
	if q := requestOf(r); q.gpu != 16443 || q.all || q.host != 0 {
		t.Errorf("not fitting: %+v", q)
	}
}

func TestRequestOfProcesses(t *testing.T) {
	r := planned()
	// For 4 processes together 4096 MiB and 4 * 100 MiB of /dev/shm, and on each GPU, with 100 MiB of NCCL,
	// 10640 MiB + 1 B; times 1.05.
	r.Train.Ranks, r.Uncertainty.NCCLHighBytes = 4, 100*tensor.MiB
	if q := requestOf(r); q != (request{gpus: 4, gpu: 11173, host: 4301, shm: 420}) {
		t.Errorf("of 4 processes: %+v", q)
	}
}

func TestRequestYAML(t *testing.T) {
	for _, name := range []string{"kubernetes", "hami"} {
		for _, r := range []*Report{planned(), {Verdict: Verdict{Result: OOMs}}} {
			var b strings.Builder
			if err := Formats.Lookup(name).Write(&b, r, Options{}); err != nil {
				t.Fatal(err)
			}
			var pod struct {
				Metadata struct{ Name string }
				Spec     struct {
					Containers []struct {
						Name         string
						Resources    struct{ Requests, Limits map[string]string }
						VolumeMounts []struct {
							Name string
							Path string `yaml:"mountPath"`
						} `yaml:"volumeMounts"`
					}
					Affinity struct {
						NodeAffinity map[string]any `yaml:"nodeAffinity"`
					}
					Volumes []struct {
						Name     string
						EmptyDir struct {
							Medium    string
							SizeLimit string `yaml:"sizeLimit"`
						} `yaml:"emptyDir"`
					}
				}
			}
			d := yaml.NewDecoder(strings.NewReader(b.String()))
			d.KnownFields(true)
			if err := d.Decode(&pod); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, b.String())
			}
			c := pod.Spec.Containers[0]
			if c.Resources.Limits["nvidia.com/gpu"] != "1" {
				t.Errorf("%s: %v", name, c.Resources.Limits)
			}
			if r.Host == nil {
				if !strings.Contains(b.String(), "OUT OF MEMORY") || pod.Metadata.Name != "memplan" {
					t.Errorf("%s:\n%s", name, b.String())
				}
				continue
			}
			if pod.Metadata.Name != "my-model-v2" || c.Resources.Limits["memory"] != "4301Mi" || c.Resources.Requests["memory"] != "4301Mi" {
				t.Errorf("%s: %+v", name, pod)
			}
			if v := pod.Spec.Volumes; len(v) != 1 || v[0].EmptyDir.Medium != "Memory" || v[0].EmptyDir.SizeLimit != "105Mi" || c.VolumeMounts[0].Path != "/dev/shm" {
				t.Errorf("%s: %+v", name, v)
			}
			if got := c.Resources.Limits["nvidia.com/gpumem"]; (name == "hami") != (got == "11068") || (name == "kubernetes") != (pod.Spec.Affinity.NodeAffinity != nil) {
				t.Errorf("%s: %q, %+v", name, got, pod.Spec.Affinity)
			}
		}
	}
}

// In a batch script every line is a comment to the shell.
func TestRequestSlurm(t *testing.T) {
	var b strings.Builder
	if err := Formats.Lookup("slurm").Write(&b, planned(), Options{}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "#") {
			t.Errorf("not a comment: %q", line)
		}
	}
	for _, want := range []string{"#!/bin/sh\n", "\n#SBATCH --job-name=my-model-v2\n", "\n#SBATCH --mem=4301M\n", "\n#SBATCH --gres=gpu:1\n", " 11068 MiB"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
