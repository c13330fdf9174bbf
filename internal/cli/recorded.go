package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/record"
	"github.com/memplan/memplan/internal/spec"
)

// recordingExt is how recordings end, and maxRecording what one may have.
const (
	recordingExt = ".rec"
	maxRecording = 256 << 20
)

// isRecording reports whether a file is named as recordings are.
func isRecording(name string) bool {
	return strings.HasSuffix(name, recordingExt) || strings.HasSuffix(name, recordingExt+".gz")
}

// recorded makes the recipe of a recording, of which the flags say the machine.
func (o *source) recorded(c *cobra.Command, s *Streams, name string, text []byte) (*estimate.Recipe, error) {
	budget := s.bounded(c.Context())
	r, err := readRecordings(text, budget)
	if err != nil {
		return nil, usagef("%s: %w", printable.File(name), err)
	}
	for _, flag := range []string{"precision", "optimizer", "steps", "lengths"} {
		if f := c.Flags().Lookup(flag); f != nil && f.Changed {
			return nil, usagef("--%s is not for recordings: record the script again with other arguments (--gpu, --memory, --torch and --alloc-conf may change)", flag)
		}
	}
	options := spec.Options{Set: o.set, Flags: o.overrides(c), Made: true, Said: []string{"torch", "device.gpu"}, Label: name + " (as a spec)"}
	if o.devices != "" {
		list, err := s.read(o.devices, files.MaxText)
		if err != nil {
			return nil, err
		}
		if options.GPUs, err = spec.ParseGPUs(o.devices, list); err != nil {
			return nil, err
		}
	}
	return &estimate.Recipe{Path: name, Text: r.Text(name), Recorded: r, Options: options, Budget: budget}, nil
}

// ofSpec refuses a recording where a spec is needed.
func ofSpec(j *estimate.Job) error {
	if is, _ := j.Recorded(); is {
		return usagef("%s is a recording, which has no spec", j.Spec.Path)
	}
	return nil
}

func readRecordings(text []byte, b *limit.Budget) (r *estimate.Recordings, err error) {
	m := b.Meter()
	defer m.Close()
	defer limit.Catch(&err)
	all, err := record.Read(text, m)
	if err != nil {
		return nil, err
	}
	return estimate.NewRecordings(all)
}
