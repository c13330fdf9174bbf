package accuracy

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

// compareGolden replays the traces of a folder and holds what is reserved and
// allocated after each event, and the requests that fail, against what
// PyTorch's allocator did. (The tests of allocsim compare addresses and every
// statistic too.)
func compareGolden(dir string) ([]*Case, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json.gz"))
	if err != nil {
		return nil, err
	}
	var out []*Case
	for _, path := range files {
		c := &Case{Name: strings.TrimSuffix(filepath.Base(path), ".json.gz"), Family: "traces"}
		data, err := readGzip(path)
		if err != nil {
			return nil, err
		}
		if c.Difference, err = goldenDifference(data); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		c.Equal = c.Difference == ""
		out = append(out, c)
	}
	return out, nil
}

func goldenDifference(data []byte) (string, error) {
	var want struct {
		Expected struct {
			OOMEvents []int          `json:"oom_events"`
			Reserved  []tensor.Bytes `json:"reserved"`
			Allocated []tensor.Bytes `json:"allocated"`
		}
	}
	if err := json.Unmarshal(data, &want); err != nil {
		return "", err
	}
	r, err := replay(data, true)
	if err != nil {
		return "", err
	}
	e := &want.Expected
	for _, s := range []struct {
		what      string
		got, want []tensor.Bytes
	}{{"reserved", r.ReservedSeries, e.Reserved}, {"allocated", r.AllocatedSeries, e.Allocated}} {
		if len(s.got) != len(s.want) {
			return fmt.Sprintf("%d values of %s memory, recorded %d", len(s.got), s.what, len(s.want)), nil
		}
		for i := range s.got {
			if s.got[i] != s.want[i] {
				return fmt.Sprintf("event %d: %d bytes %s, recorded %d", i, int64(s.got[i]), s.what, int64(s.want[i])), nil
			}
		}
	}
	if ooms := r.Simulation().OOMEvents; !slices.Equal(ooms, e.OOMEvents) {
		return fmt.Sprintf("out of memory in events %v, recorded %v", ooms, e.OOMEvents), nil
	}
	return "", nil
}

// compareReplay replays recorded training steps and holds the peaks of each
// step, and what the allocator holds at the end, against what
// torch.cuda.memory_stats said.
func compareReplay(dir string) ([]*Case, error) {
	text, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		return nil, err
	}
	var cases []struct {
		Name  string
		Steps []struct {
			PeakAllocated tensor.Bytes `json:"peak_allocated_bytes"`
			PeakReserved  tensor.Bytes `json:"peak_reserved_bytes"`
		}
		EndReserved    tensor.Bytes `json:"end_reserved_bytes"`
		Segments       int64        `json:"segments"`
		NumDeviceAlloc int64        `json:"num_device_alloc"`
		NumDeviceFree  int64        `json:"num_device_free"`
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		return nil, err
	}
	var out []*Case
	for _, want := range cases {
		data, err := readGzip(filepath.Join(dir, want.Name+".json.gz"))
		if err != nil {
			return nil, err
		}
		r, err := replay(data, false)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", want.Name, err)
		}
		c := &Case{Name: want.Name, Family: "steps"}
		for i, w := range want.Steps {
			sp := StepPeaks{RecordedAllocated: w.PeakAllocated, RecordedReserved: w.PeakReserved}
			if i+1 < len(r.Steps) { // the first is the setup
				sp.Allocated, sp.Reserved = r.Steps[i+1].PeakAllocated.Allocated, r.Steps[i+1].PeakReserved.Reserved
			}
			c.Steps = append(c.Steps, sp)
		}
		got := [4]int64{int64(r.Stats.ReservedBytes.All.Current), r.Stats.Segment.All.Current, r.Stats.NumDeviceAlloc, r.Stats.NumDeviceFree}
		if end := [4]int64{int64(want.EndReserved), want.Segments, want.NumDeviceAlloc, want.NumDeviceFree}; got != end {
			c.Difference = fmt.Sprintf("bytes reserved, segments, allocations and frees of the device at the end are %v, recorded %v", got, end)
		}
		c.Equal = c.Difference == ""
		out = append(out, c)
	}
	return out, nil
}

// replay runs a trace in the circumstances in which it was recorded.
func replay(data []byte, series bool) (*allocsim.Result, error) {
	f, err := trace.Read(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	conf, err := allocsim.ParseConfig(f.Config, torchver.Recorded)
	if err != nil {
		return nil, err
	}
	return allocsim.Replay(f.Events, allocsim.ReplayOptions{Config: conf, Capacity: f.Capacity, MemoryFraction: f.MemoryFraction, Series: series})
}

func readGzip(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, 256<<20))
}
