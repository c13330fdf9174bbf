package accuracy

import (
	"encoding/json"

	"github.com/memplan/memplan/internal/trace"
)

// FuzzCase is a random spec with what real PyTorch allocated when it ran the
// script that the spec means.
type FuzzCase struct {
	Name   string         `json:"name"`
	Arch   string         `json:"arch"`
	Torch  string         `json:"torch"`
	Spec   string         `json:"spec"`
	Events trace.Recorded `json:"events"`
	Steps  []RecordedStep `json:"steps"`
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
	return cases, readJSON(path, &cases)
}
