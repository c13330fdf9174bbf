package gate

import (
	"errors"
	"testing"

	"github.com/memplan/memplan/internal/spec"
)

// No configuration makes memplan panic; mistakes are errors with places.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{
		"devices: [t4]\nheadroom: 5%\nrules: {MP005: off}\noverrides: [{specs: ['**/a?.yaml'], max_growth: 2GiB}]\n",
		"exclude: [/x, '*', '**']\nfail_on: never\nbaseline: b.json\n", "rules: [1]\noverrides: {a: 1}\n", "overrides: [1, null, [], {specs: {}}]", "&a [*a]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig("c.yaml", "/project", text, func(string) ([]byte, error) { return nil, errors.New("no files here") })
		if wrong := (*spec.Errors)(nil); err != nil && !errors.As(err, &wrong) {
			t.Fatalf("%T: %v", err, err)
		}
		if err == nil {
			c.policy("a/b.yaml")
			c.exclude.match("a/b.yaml")
		}
	})
}

func FuzzBaseline(f *testing.F) {
	for _, text := range []string{
		`{"memplan_baseline": 1, "memplan": "v1", "specs": [{"spec": "a.yaml", "device": "", "gpu": "t4", "batch_size": 1, "result": "FITS", "allocated_bytes": 1, "reserved_bytes": 2, "reserved_expected_bytes": 2}]}`,
		`{"memplan_baseline": 2}`, `[]`, `{"memplan_baseline": 1, "specs": [{"spec": "../../a", "reserved_bytes": -1}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(_ *testing.T, text []byte) {
		b, err := ReadBaseline("b.json", text)
		if err != nil {
			return
		}
		c, _ := ParseConfig("", "/", nil, nil)
		(&Options{Baseline: b, Config: c}).gone()
		b.find("a.yaml", "")
	})
}
