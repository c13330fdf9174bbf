package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// idx writes an array of bytes as IDX.
func idx(size []uint32, data ...byte) []byte {
	b := []byte{0, 0, 8, byte(len(size))}
	for _, s := range size {
		b = binary.BigEndian.AppendUint32(b, s)
	}
	return append(b, data...)
}

func npy(descr, shape string, data []byte) []byte {
	h := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
	h += strings.Repeat(" ", 118-len(h)%64%118) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(h)), byte(len(h)>>8))
	return append(append(b, h...), data...)
}

func zipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

func TestRead(t *testing.T) {
	pixels := idx([]uint32{2, 1, 3}, 1, 2, 3, 4, 5, 6)
	for name, content := range map[string][]byte{"a.idx": pixels, "a.idx.gz": zipped(pixels)} {
		f, err := Read(name, content)
		if err != nil {
			t.Fatal(err)
		}
		out := make([]float64, 3)
		f.Array.At(1, out)
		if !slices.Equal(f.Array.Size, []int64{2, 1, 3}) || !slices.Equal(out, []float64{4, 5, 6}) {
			t.Errorf("%s: %v, %v", name, f.Array.Size, out)
		}
	}
	f, err := Read("b.npy", npy(">i2", "2, 2", []byte{0, 1, 0xff, 0xff, 1, 0, 0, 2}))
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, 2)
	f.Array.At(0, out)
	if !slices.Equal(out, []float64{1, -1}) {
		t.Errorf("npy: %v", out)
	}
	record := append([]byte{7}, bytes.Repeat([]byte{9}, cifarImage)...)
	if f, err = Read("batch.bin", append(record, record...)); err != nil {
		t.Fatal(err)
	}
	f.Labels.At(1, out[:1])
	if f.Images.Samples() != 2 || out[0] != 7 {
		t.Errorf("cifar: %d samples, label %v", f.Images.Samples(), out[0])
	}
	for name, c := range map[string]struct {
		content []byte
		message string
	}{
		"short.idx":  {idx([]uint32{2, 2}, 1, 2, 3), "need 4 bytes, the file has 3"},
		"cut.idx":    {[]byte{0, 0, 8, 3, 0}, "ends in its sizes"},
		"none.idx":   {idx([]uint32{0, 2}), "no samples"},
		"odd.bin":    {make([]byte, 100), "no whole number of CIFAR records"},
		"e.txt":      {nil, "the file is empty"},
		"x.dat":      {[]byte{1, 0, 2}, "not a format that is known"},
		"c8.npy":     {npy("<c8", "1", make([]byte, 8)), "elements of type c8"},
		"huge.npy":   {npy("<f8", "9223372036854775807, 9", nil), "impossible sizes"},
		"broken.gz":  {[]byte{0x1f, 0x8b, 1}, "broken.gz"},
		"header.npy": {[]byte("\x93NUMPY\x01\x00\xff\xff"), "ends in its header"},
	} {
		if _, err := Read(name, c.content); err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: error %v, not %q", name, err, c.message)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("a.idx", idx([]uint32{2, 1}, 1, 2))
	f.Add("a.npy", npy("<f4", "1,", []byte{0, 0, 0, 0}))
	f.Add("a.bin", make([]byte, 3073))
	f.Add("a.txt", []byte("text"))
	f.Add("a.idx.gz", zipped(idx([]uint32{2, 1}, 1, 2)))
	f.Add("a.npy.gz", zipped(npy(">i2", "2, 2", []byte{0, 1, 0xff, 0xff, 1, 0, 0, 2}))[:70])
	f.Add("bomb.bin.gz", zipped(make([]byte, 1<<22)))
	f.Add("two.gz", append(zipped([]byte("one")), zipped([]byte("two"))...))
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		const most = 1 << 20
		file, err := read(name, content, most)
		if err != nil {
			return
		}
		if len(content) <= most && len(file.Text) > most {
			t.Errorf("%d bytes of text were unpacked", len(file.Text))
		}
		for _, a := range []*Array{file.Array, file.Images, file.Labels} {
			if a != nil {
				a.At(a.Samples()-1, make([]float64, a.Each()))
			}
		}
	})
}

func TestPairs(t *testing.T) {
	text := []byte("ababababcab")
	got, _ := Pairs(text, 258)
	// ab becomes 256, then 256 256 becomes 257.
	if want := []int64{257, 257, 'c', 256}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	if got, _ := Pairs(text, 256); !slices.Equal(got, Bytes(text)) {
		t.Errorf("without room for pairs: %v", got)
	}
}

// TestSource checks that every sample comes once in an epoch, beside its label,
// and that orders differ.
func TestSource(t *testing.T) {
	const n = 37
	var x, y []byte
	for i := range byte(n) {
		x, y = append(x, i, i), append(y, i)
	}
	images, err := Read("x", idx([]uint32{n, 2}, x...))
	if err != nil {
		t.Fatal(err)
	}
	labels, err := Read("y", idx([]uint32{n}, y...))
	if err != nil {
		t.Fatal(err)
	}
	inputs := []program.Input{{Name: "x", Size: []int64{4, 2}, DType: tensor.Int64}, {Name: "y", Size: []int64{4}, DType: tensor.Int64}}
	s, err := New(Options{Files: Files{"x": {images}, "y": {labels}}, Inputs: inputs, Bounds: map[string]int64{"y": n}, Batch: 4, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	p := NewPrefetch(s.Training(), inputs)
	var order [2][]float64
	for b := range 18 {
		xs, err := p.Values(b, inputs[0])
		if err != nil {
			t.Fatal(err)
		}
		ys, err := p.Values(b, inputs[1])
		if err != nil {
			t.Fatal(err)
		}
		vx, vy := tensor.Decode(tensor.Int64, xs), tensor.Decode(tensor.Int64, ys)
		for i, label := range vy {
			if vx[2*i] != label {
				t.Fatalf("batch %d: sample %v has label %v", b, vx[2*i], label)
			}
		}
		order[b/9] = append(order[b/9], vy...)
	}
	for _, o := range order {
		if len(slices.Compact(slices.Sorted(slices.Values(o)))) != 36 {
			t.Errorf("an epoch of 36 samples: %v", o)
		}
	}
	if slices.Equal(order[0], order[1]) {
		t.Error("both epochs have one order")
	}

	if _, err := New(Options{Files: Files{"x": {labels}, "y": {labels}}, Inputs: inputs, Batch: 4}); err == nil || !strings.Contains(err.Error(), "1 elements; the input takes shape [2], 2") {
		t.Errorf("wrong shape: %v", err)
	}
	s, err = New(Options{Files: Files{"x": {images}, "y": {labels}}, Inputs: inputs, Bounds: map[string]int64{"y": 5}, Batch: 37})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Training().Values(0, program.Input{Name: "y", Size: []int64{37}, DType: tensor.Int64}); err == nil || !strings.Contains(err.Error(), "is outside of 0 … 4") {
		t.Errorf("label out of range: %v", err)
	}
}

// TestText checks that targets are the tokens behind the inputs'.
func TestText(t *testing.T) {
	f, err := Read("corpus.txt", []byte("abcdefghij"))
	if err != nil {
		t.Fatal(err)
	}
	inputs := []program.Input{{Name: "ids", Size: []int64{2, 3}, DType: tensor.Int64}, {Name: "y", Size: []int64{2, 3}, DType: tensor.Int64}}
	s, err := New(Options{
		Files: Files{"": {f}}, Inputs: inputs, Bounds: map[string]int64{"ids": 300, "y": 300}, Targets: map[string]bool{"y": true}, Batch: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.Training().Values(0, inputs[0])
	if err != nil {
		t.Fatal(err)
	}
	y, err := s.Training().Values(0, inputs[1])
	if err != nil {
		t.Fatal(err)
	}
	a, b := tensor.Decode(tensor.Int64, x), tensor.Decode(tensor.Int64, y)
	for i := range a {
		if b[i] != a[i]+1 {
			t.Errorf("token %v is followed by %v", a[i], b[i])
		}
	}
	if _, err := New(Options{Files: Files{"": {f}}, Inputs: inputs, Bounds: map[string]int64{"ids": 50, "y": 50}, Batch: 2}); err == nil || !strings.Contains(err.Error(), "the model knows 50") {
		t.Errorf("too small a vocabulary: %v", err)
	}
}

// number is an array of n samples, each of which is its number, from first on.
func number(t *testing.T, name string, first, n byte) *File {
	t.Helper()
	var v []byte
	for i := range n {
		v = append(v, first+i)
	}
	f, err := Read(name, idx([]uint32{uint32(n)}, v...))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// batches are the values of the first batches of an input.
func batches(t *testing.T, s *Source, in program.Input, n int) (out []float64) {
	t.Helper()
	for b := range n {
		v, err := s.Values(b, in)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tensor.Decode(in.DType, v)...)
	}
	return out
}

// TestParts checks that the samples of several files follow one another, and that those of
// evaluations are others than those that are trained on.
func TestParts(t *testing.T) {
	y := program.Input{Name: "y", Size: []int64{4}, DType: tensor.Int64}
	o := Options{Files: Files{"y": {number(t, "a", 0, 7), number(t, "b", 7, 13)}}, Inputs: []program.Input{y}, Batch: 4, InOrder: true}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range batches(t, s.Training(), y, 5) {
		if v != float64(i) {
			t.Fatalf("sample %d in its order is %v", i, v)
		}
	}
	if s.Validation(4) != nil {
		t.Error("there are samples for evaluations")
	}
	o.Share, o.InOrder, o.Seed = 0.2, false, 5
	if s, err = New(o); err != nil {
		t.Fatal(err)
	}
	held := batches(t, s.Validation(4), y, 1)
	all := append(batches(t, s.Training(), y, 4), held...)
	if slices.Sort(all); len(slices.Compact(all)) != 20 {
		t.Errorf("training and evaluations have %v in all", all)
	}
	if slices.Equal(held, []float64{16, 17, 18, 19}) {
		t.Errorf("what is held out is the end of the files")
	}
	o.Share, o.Validation = 0, Files{"": {number(t, "c", 100, 8)}}
	if s, err = New(o); err != nil {
		t.Fatal(err)
	}
	if v := batches(t, s.Validation(4), y, 2); v[0] != 100 || v[7] != 107 || s.Training().Samples() != 20 {
		t.Errorf("of files of their own: %v", v)
	}
	x := program.Input{Name: "x", Size: []int64{4}, DType: tensor.Int64}
	o.Inputs, o.Files["x"], o.Validation = []program.Input{x, y}, []*File{number(t, "d", 0, 19)}, nil
	if _, err = New(o); err == nil || err.Error() != `input "y": its files have 20 samples, those of input "x" 19` {
		t.Errorf("other numbers of samples: %v", err)
	}
	o.Files["x"] = []*File{number(t, "d", 0, 20)}
	o.Validation = Files{"x": {number(t, "d", 0, 20)}}
	if _, err = New(o); err == nil || err.Error() != `there is no file for input "y" in evaluations` {
		t.Errorf("evaluations without labels: %v", err)
	}
	floats, err := Read("f.npy", npy("<f4", "1,", []byte{0, 0, 0, 0}))
	if err != nil {
		t.Fatal(err)
	}
	o.Files["x"] = append(o.Files["x"], floats)
	if _, err = New(o); err == nil || !strings.Contains(err.Error(), "f.npy has samples of shape [] and type float32, d of shape [] and type uint8") {
		t.Errorf("files of two kinds: %v", err)
	}
}

// TestTextParts checks that evaluations see the end of a text, and that the pairs of
// training encode the texts of evaluations.
func TestTextParts(t *testing.T) {
	read := func(text string) *File { return &File{Name: "text", Text: []byte(text)} }
	in := program.Input{Name: "ids", Size: []int64{1, 2}, DType: tensor.Int64}
	o := Options{Files: Files{"": {read("abcdefghijk")}}, Inputs: []program.Input{in}, Bounds: map[string]int64{"ids": 300}, Batch: 1, Share: 0.4}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if v := batches(t, s.Validation(1), in, 2); !slices.Equal(v, []float64{'g', 'h', 'i', 'j'}) {
		t.Errorf("evaluations see %v", v)
	}
	other := read("abcab")
	other.Name = "other"
	o.Files, o.Validation, o.Share, o.Pairs = Files{"": {read("abababab")}}, Files{"": {other}}, 0, true
	o.Bounds["ids"] = 257
	if s, err = New(o); err != nil {
		t.Fatal(err)
	}
	if v := batches(t, s.Validation(1), in, 1); !slices.Equal(v, []float64{256, 'c'}) {
		t.Errorf("the text of evaluations is %v", v)
	}
}
