package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// DiffVersion is the version of the JSON of Diff.
const DiffVersion = 1

// Diff is what two reports say differently. Peak, AtPeak, Phases, Totals and
// Host hold all their figures, equal ones too, in the order of reports; the
// other lists hold only what differs.
type Diff struct {
	Version  int          `json:"memplan_diff"`
	A        DiffSide     `json:"a"`
	B        DiffSide     `json:"b"`
	Equal    bool         `json:"equal"` // no setting, figure or layer differs, names aside
	Settings []DiffText   `json:"settings"`
	Batch    []DiffCount  `json:"batch"` // what differs, if both reports have advice
	Peak     []DiffBytes  `json:"peak"`
	AtPeak   []DiffBytes  `json:"at_peak"`
	Phases   []DiffBytes  `json:"phases"` // the most that is allocated in each
	Totals   []DiffBytes  `json:"totals"`
	Host     []DiffBytes  `json:"host"` // empty unless both reports have it
	Layers   []DiffLayer  `json:"layers"`
	Renamed  []DiffText   `json:"renamed"`      // layers that hold the same under another name
	Missing  []DiffRemark `json:"not_modelled"` // what either figure lacks
}

// DiffSide says what one side is.
type DiffSide struct {
	Source string `json:"source"` // as it was named: a path, REF:path or preset:NAME
	Model  string `json:"model"`
	Device string `json:"device"`
	Result string `json:"result"`
}

// DiffText is something that both sides put in words.
type DiffText struct {
	Name string `json:"name"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// DiffCount is a number of both sides.
type DiffCount struct {
	Name  string `json:"name"`
	A     int64  `json:"a"`
	B     int64  `json:"b"`
	Delta int64  `json:"delta"`
	label string
}

// DiffBytes is a size of both sides, under the name that the report's JSON has
// for it.
type DiffBytes struct {
	Name    string       `json:"name"`
	A       tensor.Bytes `json:"a_bytes"`
	B       tensor.Bytes `json:"b_bytes"`
	Delta   tensor.Bytes `json:"delta_bytes"`
	Percent *float64     `json:"percent"` // of A; null where A has nothing
	label   string
}

// DiffLayer is a layer that holds something else at the peak, or that only one
// side has there.
type DiffLayer struct {
	Layer  string      `json:"layer"`
	Kind   string      `json:"kind"`
	In     string      `json:"in"` // both, a or b
	CountA int         `json:"a_count"`
	CountB int         `json:"b_count"`
	Total  DiffBytes   `json:"total"`
	Parts  []DiffBytes `json:"parts"` // of it, those that differ
}

// DiffRemark is something that is not modelled in one side or in both.
type DiffRemark struct {
	In   string `json:"in"` // both, a or b
	Text string `json:"text"`
}

// diffTexts are the settings that a job's memory depends on, and the outcome in
// words. Names of models, files and layers are left out: they need no memory.
var diffTexts = []struct {
	name string
	of   func(r *Report) string
}{
	{"verdict", func(r *Report) string { return r.Verdict.Result }},
	{"out of memory in", func(r *Report) string {
		if o := r.Verdict.OOM; o != nil {
			return Where(o.Step, o.Phase, o.Op, "")
		}
		return "-"
	}},
	{"grows by", func(r *Report) string {
		if l := r.Verdict.Leak; l != nil {
			return fmt.Sprintf("%v in %s", l.Bytes, Plural(int64(l.Period), "step"))
		}
		return "-"
	}},
	{"host memory", func(r *Report) string {
		if r.Host == nil {
			return "-"
		}
		return r.Host.Result
	}},
	{"peak in", func(r *Report) string { return Where(r.Peak.Step, r.Peak.Phase, r.Peak.Op, "") }},
	{"device", func(r *Report) string { return r.Device.Name }},
	{"arch", func(r *Report) string { return r.Device.Arch }},
	{"parameters", func(r *Report) string { return fmt.Sprint(r.Model.Parameters) }},
	{"trainable parameters", func(r *Report) string { return fmt.Sprint(r.Model.TrainableParameters) }},
	{"mode", func(r *Report) string { return r.Train.Mode }},
	{"batch size", func(r *Report) string { return fmt.Sprint(r.Train.BatchSize) }},
	{"one sequence", func(r *Report) string { return fmt.Sprint(r.Train.OneSequence) }},
	{"precision", func(r *Report) string { return r.Train.Precision }},
	{"optimizer", func(r *Report) string { return r.Train.Optimizer }},
	{"loop", func(r *Report) string { return r.Train.Loop }},
	{"input", func(r *Report) string { return r.Train.Input }},
	{"torch", func(r *Report) string { return r.Train.Torch }},
	{"alloc_conf", func(r *Report) string { return r.Allocator.Conf }},
	{"cudnn_workspace", func(r *Report) string { return r.Uncertainty.CudnnWorkspace }},
}

// diffSize is one size of reports.
type diffSize struct {
	name, label string
	of          func(r *Report) tensor.Bytes
}

// The sizes of Peak, Totals and Host; those of AtPeak are its Shares.
var (
	diffPeak = []diffSize{
		{"allocated_bytes", "allocated", func(r *Report) tensor.Bytes { return r.Peak.AllocatedBytes }},
		{"reserved_bytes", "reserved", func(r *Report) tensor.Bytes { return r.Peak.ReservedBytes }},
		{"reserved_expected_bytes", "reserved, with cuDNN's workspaces", func(r *Report) tensor.Bytes { return r.Uncertainty.ReservedExpectedBytes }},
		{"device_bytes", "device", func(r *Report) tensor.Bytes { return r.Peak.DeviceBytes }},
		{"usable_bytes", "usable", func(r *Report) tensor.Bytes { return r.Device.UsableBytes }},
		{"headroom_bytes", "headroom", func(r *Report) tensor.Bytes { return r.Verdict.HeadroomBytes }},
		{"fragmentation_bytes", "fragmentation", func(r *Report) tensor.Bytes { return r.Allocator.FragmentationBytes }},
	}
	diffTotals = []diffSize{
		{"parameters_bytes", "parameters", func(r *Report) tensor.Bytes { return r.Totals.ParametersBytes }},
		{"buffers_bytes", "buffers", func(r *Report) tensor.Bytes { return r.Totals.BuffersBytes }},
		{"gradients_bytes", "gradients", func(r *Report) tensor.Bytes { return r.Totals.GradientsBytes }},
		{"optimizer_state_bytes", "optimizer state", func(r *Report) tensor.Bytes { return r.Totals.OptimizerStateBytes }},
		{"saved_activations_bytes", "saved activations", func(r *Report) tensor.Bytes { return r.Totals.SavedActivationsBytes }},
		{"batch_bytes", "batch", func(r *Report) tensor.Bytes { return r.Totals.BatchBytes }},
	}
	diffHost = []diffSize{
		{"total_bytes", "total", func(r *Report) tensor.Bytes { return r.Host.TotalBytes }},
		{"shared_memory_bytes", "/dev/shm", func(r *Report) tensor.Bytes { return r.Host.SharedMemoryBytes }},
		{"pinned_bytes", "pinned", func(r *Report) tensor.Bytes { return r.Host.PinnedBytes }},
		{"offloaded_bytes", "offloaded", func(r *Report) tensor.Bytes { return r.Host.OffloadedBytes }},
	}
	diffParts = []struct {
		name, label string
		of          func(l *Layer) tensor.Bytes
	}{
		{"parameters_bytes", "parameters", func(l *Layer) tensor.Bytes { return l.ParametersBytes }},
		{"gradients_bytes", "gradients", func(l *Layer) tensor.Bytes { return l.GradientsBytes }},
		{"activations_bytes", "activations", func(l *Layer) tensor.Bytes { return l.ActivationsBytes }},
		{"other_bytes", "other", func(l *Layer) tensor.Bytes { return l.OtherBytes }},
	}
)

// Compare says what differs between two reports.
func Compare(a, b *Report) *Diff {
	d := &Diff{
		Version: DiffVersion, A: sideOf(a), B: sideOf(b), Settings: []DiffText{}, Batch: []DiffCount{}, Host: []DiffBytes{},
		Layers: []DiffLayer{}, Renamed: []DiffText{}, Missing: []DiffRemark{},
	}
	for _, t := range diffTexts {
		if x, y := t.of(a), t.of(b); x != y {
			d.Settings = append(d.Settings, DiffText{t.name, x, y})
		}
	}
	d.Equal = len(d.Settings) == 0
	sizes := func(rows []diffSize) []DiffBytes {
		out := []DiffBytes{}
		for _, row := range rows {
			x := diffOf(row.name, row.label, row.of(a), row.of(b))
			d.Equal = d.Equal && x.Delta == 0
			out = append(out, x)
		}
		return out
	}
	d.Peak, d.Totals = sizes(diffPeak), sizes(diffTotals)
	other := b.AtPeak.Shares()
	for i, s := range a.AtPeak.Shares() {
		x := diffOf(strings.ReplaceAll(s.Name, " ", "_")+"_bytes", s.Name, s.Bytes, other[i].Bytes)
		d.Equal = d.Equal && x.Delta == 0
		d.AtPeak = append(d.AtPeak, x)
	}
	d.phases(a.Phases, b.Phases)
	if a.Host != nil && b.Host != nil {
		d.Host = sizes(diffHost)
	}
	if x, y := a.Advice, b.Advice; x != nil && y != nil {
		d.count("max_batch_size", "largest batch", x.MaxBatchSize, y.MaxBatchSize)
		d.count("recommended_batch_size", "recommended batch", x.RecommendedBatchSize, y.RecommendedBatchSize)
	}
	d.layers(a.Layers, b.Layers)
	for _, s := range a.NotModelled {
		d.Missing = append(d.Missing, DiffRemark{where(slices.Contains(b.NotModelled, s), "a"), s})
	}
	for _, s := range b.NotModelled {
		if !slices.Contains(a.NotModelled, s) {
			d.Missing = append(d.Missing, DiffRemark{"b", s})
		}
	}
	return d
}

func sideOf(r *Report) DiffSide {
	return DiffSide{r.Spec, r.Model.Name, r.Device.DisplayName, r.Verdict.Result}
}

func where(both bool, one string) string {
	if both {
		return "both"
	}
	return one
}

func diffOf(name, label string, a, b tensor.Bytes) DiffBytes {
	d := DiffBytes{Name: name, A: a, B: b, Delta: b - a, label: label}
	if a != 0 {
		p := 100 * float64(d.Delta) / float64(max(a, -a))
		d.Percent = &p
	}
	return d
}

// phases pairs the phases of two steps by name.
func (d *Diff) phases(a, b []Phase) {
	d.Phases = []DiffBytes{}
	peak := func(list []Phase, name string) tensor.Bytes {
		for _, p := range list {
			if p.Phase == name {
				return p.PeakAllocatedBytes
			}
		}
		return 0
	}
	seen := map[string]bool{}
	for _, p := range slices.Concat(a, b) {
		if !seen[p.Phase] {
			seen[p.Phase] = true
			x := diffOf(p.Phase, p.Phase, peak(a, p.Phase), peak(b, p.Phase))
			d.Equal = d.Equal && x.Delta == 0
			d.Phases = append(d.Phases, x)
		}
	}
}

func (d *Diff) count(name, label string, a, b int64) {
	if a != b {
		d.Batch = append(d.Batch, DiffCount{name, a, b, b - a, label})
		d.Equal = false
	}
}

// layers pairs the layers of two breakdowns: by path and class, else by path,
// and of the rest those that hold the same, which were only renamed.
func (d *Diff) layers(a, b []Layer) {
	pair := make([]int, len(a)) // index in b
	taken := make([]bool, len(b))
	for i := range pair {
		pair[i] = -1
	}
	for _, same := range []func(x, y *Layer) bool{
		func(x, y *Layer) bool { return x.Layer == y.Layer && x.Kind == y.Kind },
		func(x, y *Layer) bool { return x.Layer == y.Layer },
		func(x, y *Layer) bool {
			z := *x
			z.Layer = y.Layer
			return z == *y
		},
	} {
		for i := range a {
			for j := 0; j < len(b) && pair[i] < 0; j++ {
				if !taken[j] && same(&a[i], &b[j]) {
					pair[i], taken[j] = j, true
				}
			}
		}
	}
	for i := range a {
		x, y, in := &a[i], &Layer{}, "a"
		if pair[i] >= 0 {
			y, in = &b[pair[i]], "both"
			if x.Layer != y.Layer {
				d.Renamed = append(d.Renamed, DiffText{x.Kind, x.Layer, y.Layer})
			}
		}
		d.layer(x, y, x, in)
	}
	for j := range b {
		if !taken[j] {
			d.layer(&Layer{}, &b[j], &b[j], "b")
		}
	}
	slices.SortStableFunc(d.Layers, func(x, y DiffLayer) int {
		return int(min(1, max(-1, abs(y.Total.Delta)-abs(x.Total.Delta))))
	})
}

// layer adds what differs between x and y, under the name of one of them.
func (d *Diff) layer(x, y, named *Layer, in string) {
	l := DiffLayer{Layer: named.Layer, Kind: named.Kind, In: in, CountA: x.Count, CountB: y.Count, Parts: []DiffBytes{}}
	l.Total = diffOf("total_bytes", "total", x.TotalBytes, y.TotalBytes)
	for _, p := range diffParts {
		if part := diffOf(p.name, p.label, p.of(x), p.of(y)); part.Delta != 0 {
			l.Parts = append(l.Parts, part)
		}
	}
	if len(l.Parts) > 0 || l.CountA != l.CountB {
		d.Layers = append(d.Layers, l)
		d.Equal = false
	}
}

func abs(b tensor.Bytes) tensor.Bytes { return max(b, -b) }
