package gate

import (
	"errors"
	"testing"

	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/spec/spectest"
)

// No configuration and no table of GPUs makes memplan panic; mistakes are errors
// with places.
func FuzzConfig(f *testing.F) {
	configs := [][]byte{
		[]byte("devices: [t4]\nheadroom: 5%\nrules: {MP005: off}\noverrides: [{specs: ['**/a?.yaml'], max_growth: 2GiB}]\n"),
		[]byte("exclude: [/x, '*', '**']\nfail_on: never\nbaseline: b.json\n"), []byte("rules: [1]\noverrides: {a: 1}\n"), []byte("overrides: [1, null, [], {specs: {}}]"), []byte("&a [*a]"),
		[]byte("device_table: gpus.yaml\ndevices: [lab, t4]\noverrides:\n- {specs: [a/*.yaml, '!b', /], devices: [lab], rules: {growth: warning, MP012: error}, headroom: 0, max_fragmentation: 100%}\n- {specs: '**', max_growth: 1%}\n"),
	}
	table := []byte("- {name: lab, memory: 20GiB, arch: 8.9, sms: 60, context: 300MiB}\n- {name: t4, memory: 900TiB, arch: sm_75, sms: 40}\n")
	for _, text := range configs {
		f.Add(text, table)
	}
	mutator := spectest.New(append(configs, table))
	for seed := range uint64(300) {
		r := spectest.Source(seed)
		text, changed := configs[r.IntN(len(configs))], table
		var err error
		if r.IntN(3) == 0 {
			changed, err = mutator.YAML(r, table)
		} else {
			text, err = mutator.YAML(r, text)
		}
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, changed)
	}
	f.Fuzz(func(t *testing.T, text, table []byte) {
		read := func(name string) ([]byte, error) {
			if name != "gpus.yaml" {
				return nil, errors.New("no such file")
			}
			return table, nil
		}
		c, err := ParseConfig("c.yaml", "/project", text, read)
		if wrong := (*spec.Errors)(nil); err != nil && (!errors.As(err, &wrong) || wrong.Error() == "") {
			t.Fatalf("%T: %v", err, err)
		}
		was, now := &ConfigFile{Path: "main:c.yaml", Text: configs[0], Read: read}, &ConfigFile{Path: "c.yaml", Text: text, Read: read}
		change := CompareConfig(was, now, nil)
		if err != nil {
			return
		}
		if change != nil {
			change.finding(c)
		}
		for _, path := range []string{"a/b.yaml", "/project/a/b.yaml", "../x.yaml", "preset:mlp", "-", ""} {
			p := c.policy(path)
			for _, r := range Rules() {
				p.severity(r)
			}
			c.exclude.match(path)
		}
		for _, d := range c.policy("a/b.yaml").devices {
			if err := c.Force(&Flags{Devices: []string{d}, Headroom: "1GiB", Rules: []string{"MP005=off"}}); err != nil {
				t.Errorf("a device of the configuration is none of the command line: %v", err)
			}
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
