package accuracy

import (
	"encoding/json"
	"path/filepath"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

// FuzzCase is a random spec with what real PyTorch allocated when it ran the
// script that the spec means.
type FuzzCase struct {
	Name   string         `json:"name"`
	Arch   string         `json:"arch"`
	Torch  string         `json:"torch"`
	Spec   string         `json:"spec,omitempty"`
	Events trace.Recorded `json:"events,omitempty"`
	Steps  []RecordedStep `json:"steps"`

	// GPU is the real one on which PyTorch ran, with the numbers that it computed and the
	// workspaces that its libraries took; Cudnn is the version of cuDNN that was loaded.
	GPU   string `json:"gpu,omitempty"`
	Cudnn int    `json:"cudnn,omitempty"`

	// Pretended says that PyTorch ran on a pretended GPU, without what kernels
	// allocate inside. Peaks are sums of live blocks, each rounded up to 512 bytes.
	Pretended bool `json:"pretended,omitempty"`
	// Digest stands for Events.
	Digest string `json:"digest,omitempty"`
	// Of names the recording whose job was run with the library itself, such as
	// truth-hf/bert_mlm; it stands for Spec.
	Of   string `json:"of,omitempty"`
	Ends []int  `json:"ends,omitempty"` // of set-up and steps of a trainer, in events, whose digest is of one list

	job *job
}

// Env is what the case ran on.
func (f *FuzzCase) Env() (op.Env, error) {
	env := ArchEnv(f.Arch)
	env.Pretended, env.StubCudnn, env.Cudnn = f.Pretended, !f.Pretended && f.GPU == "", f.Cudnn
	var err error
	if f.Torch != "" {
		env.Torch, err = torchver.Parse(f.Torch)
	}
	if f.Pretended { // with the cuDNN of the release's wheel, as memplan record does
		env.Cudnn = env.Torch.Cudnn(f.Torch)
	}
	return env, err
}

// CompareFuzz returns the first difference between prediction and recording,
// "" if there is none: of the events, then of the peaks.
func CompareFuzz(f *FuzzCase) (string, error) { return f.Compare().Unequal(), nil }

// WriteFuzz writes cases as a list in JSON, each case compressed by itself: where
// one is recorded again, the bytes of the others stay, and git stores the difference.
func WriteFuzz(path string, cases []*FuzzCase) error {
	texts := make([][]byte, len(cases))
	for i, c := range cases {
		text, err := json.Marshal(c)
		if err != nil {
			return err
		}
		texts[i] = text
	}
	return writeList(path, texts)
}

// ReadFuzz reads what WriteFuzz wrote.
func ReadFuzz(path string) ([]*FuzzCase, error) {
	var cases []*FuzzCase
	if err := readJSON(path, &cases); err != nil {
		return nil, err
	}
	for _, c := range cases {
		if c.Of == "" {
			continue
		}
		if err := c.find(filepath.Dir(filepath.Dir(path))); err != nil {
			return nil, err
		}
	}
	return cases, nil
}

// Condense keeps of a case what a comparison needs.
func (f *FuzzCase) Condense() {
	events, steps := f.Events, len(f.Steps)
	if f.job != nil && f.job.trainer {
		f.Ends, events, steps = ends(events, steps), whole(events, steps), 0
	}
	f.Digest, f.Events = trace.RecordedDigest(events, steps), nil
}
