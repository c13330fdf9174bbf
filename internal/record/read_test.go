package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/torchver"
)

// TestReadErrors wants each error to say in which line what is wrong.
func TestReadErrors(t *testing.T) {
	const head = `["memplan",1,{}]` + "\n"
	for _, c := range []struct{ text, want string }{
		{"", "line 1: this is no recording"},
		{`["memplan",2,{}]`, "line 1: the recording is of version 2"},
		{head + "{}", "line 2: not a JSON array"},
		{head + `["spam"]`, `line 2: unknown kind "spam"`},
		{head + `["free",0]`, "line 2: field 1 must be an integer from 0 to -1"},
		{head + `["storage","cuda:0",-1,"op"]`, "line 2: field 2 must be an integer from 0 to"},
		{head + `["schema","add"]`, `line 2: "add" is no signature`},
		{head + `["schema","aten::add(Tensor self) -> Tensor"]` + "\n" + `["op",0,[1,2],{},[]]`, "line 3: aten::add has 1 arguments, not 2"},
		{head + `["schema","aten::add(Tensor self) -> Tensor"]` + "\n" + `["op",0,[{"t":[7,0,0,0]}],{},[]]`, "line 3: field 1 must be an integer from -1 to -1"},
	} {
		if _, err := Read([]byte(c.text), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v, want %s", c.text, err, c.want)
		}
	}
}

// TestSchema reads signatures of operators.
func TestSchema(t *testing.T) {
	s, ok := parseSchema(`aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1, str rounding="a, b") -> Tensor(a!)`)
	if !ok || s.Full() != "aten::add_.Tensor" || len(s.Args) != 4 || s.Args[2].Name != "alpha" || !s.Args[0].Written || s.Args[1].Written || !s.Writes() {
		t.Errorf("%+v %v", s, ok)
	}
}

// FuzzRead reads and plays whatever comes, within bounds.
func FuzzRead(f *testing.F) {
	paths, err := filepath.Glob(needs.File(f, "record", "*.rec.gz"))
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range paths {
		if data, err := os.ReadFile(p); err == nil && len(data) < 8<<10 {
			f.Add(data)
		}
	}
	f.Add([]byte(`["memplan",1,{}]` + "\n" + `["schema","aten::mm(Tensor self, Tensor mat2) -> Tensor"]` + "\n" + `["meta","float32",[2,2],[2,1]]` + "\n" +
		`["storage","cuda:0",16,"input"]` + "\n" + `["storage","cuda:0",16,"op"]` + "\n" + `["op",0,[{"t":[0,0,0,0]},{"t":[0,0,0,0]}],{},[{"t":[1,0,0,0]}],{"backward":true}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := limit.New(t.Context(), limit.Limits{Memory: 1 << 30, Work: 1 << 22})
		defer b.Close()
		m := b.Meter()
		defer m.Close()
		all, err := func() (all []*Recording, err error) {
			defer limit.Catch(&err)
			return Read(data, m)
		}()
		if err != nil {
			return
		}
		for _, r := range all {
			p, err := Play(m, r, op.Env{Arch: 80, SMs: 108, ThreadsPerSM: 2048, Torch: torchver.Recorded})
			if err == nil && len(p.Trace.Categories) == 0 {
				t.Error("a trace without categories")
			}
		}
	})
}
