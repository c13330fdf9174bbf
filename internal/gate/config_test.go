package gate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
)

// config reads a configuration of the current folder.
func config(t testing.TB, text string) *Config {
	t.Helper()
	c, err := ParseConfig(ConfigName, mustAbs(t, "."), []byte(text), os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustAbs(t testing.TB, path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

func TestConfigMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"headrom: 5%", `.memplan.yaml:1:1: unknown key "headrom"; did you mean "headroom"?`},
		{"devices: [a100-40bg]", `.memplan.yaml:1:11: unknown gpu "a100-40bg"; did you mean "a100-40gb"?`},
		{"headroom: 2", `.memplan.yaml:1:11: headroom: "2" is neither a share such as 5% (0% to 100%) nor a size with its unit such as 2GiB`},
		{"headroom: 120%", `.memplan.yaml:1:11: headroom: "120%" is neither a share`},
		{"max_growth: much", `.memplan.yaml:1:13: max_growth: "much" is neither a share such as 5% nor a size such as 2GiB`},
		{"rules: {MP05: off}", `.memplan.yaml:1:9: unknown rule "MP05"; did you mean "MP005"?`},
		{"rules: {leek: off}", `.memplan.yaml:1:9: unknown rule "leek"; did you mean "leak"?`},
		{"rules: {leak: maybe}", `.memplan.yaml:1:15: rule MP007: severity must be error, warning, note or off, not "maybe"`},
		{"rules: {MP000: off}", `.memplan.yaml:1:16: rule MP000 is always an error`},
		{"rules: [leak]", `.memplan.yaml:1:8: rules must be a mapping from rules to severities`},
		{"fail_on: errors", `.memplan.yaml:1:10: unknown value of fail_on "errors"; did you mean "error"?`},
		{"overrides: {specs: x}", `.memplan.yaml:1:12: overrides must be a list`},
		{"overrides: [{devices: t4}]", `.memplan.yaml:1:13: an override needs specs`},
		{"overrides: [{specs: x, gpus: t4}]", `.memplan.yaml:1:24: unknown key "gpus"`},
		{"device_table: nope.yaml", `.memplan.yaml:1:15: device_table: open nope.yaml: no such file`},
		{"[1, 2]", `.memplan.yaml:1:1: configuration must be a mapping, not a list`},
		{"a: b: c", `.memplan.yaml:1:1: not valid YAML`},
		{"\xff\xfe", `.memplan.yaml:1:1: file is not valid UTF-8`},
	} {
		_, err := ParseConfig(ConfigName, ".", []byte(c.text), os.ReadFile)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.text, err, c.want)
		}
	}
	for _, text := range []string{"", "# nothing\n\n", "{}"} {
		config(t, text)
	}
}

func TestPolicy(t *testing.T) {
	c := config(t, `
devices: [t4]
headroom: 5%
rules: {MP005: off}
overrides:
  - {specs: [big/*.yaml], devices: h100-80gb, headroom: 2GiB}
  - {specs: ["**/last.yaml"], rules: {fragmentation: error, MP008: note}}
`)
	for _, want := range []struct{ path, policy string }{
		{"a.yaml", "[t4] force=false 5% off warning"},
		{"big/a.yaml", "[h100-80gb] force=true 2GiB off warning"},
		{"big/deep/a.yaml", "[t4] force=false 5% off warning"},
		{"big/last.yaml", "[h100-80gb] force=true 2GiB error note"},
		{"last.yaml", "[t4] force=false 5% error note"},
	} {
		p := c.policy(want.path)
		if got := fmt.Sprintf("%v force=%v %v %v %v", p.devices, p.force, p.headroom, p.severity(fragmentation), p.severity(tight)); got != want.policy {
			t.Errorf("%s: %s, want %s", want.path, got, want.policy)
		}
	}
	if err := c.Force(&Flags{Devices: []string{"a100-40gb"}, Headroom: "10%", Rules: []string{"MP005=warning"}}); err != nil {
		t.Fatal(err)
	}
	if p := c.policy("big/last.yaml"); p.devices[0] != "a100-40gb" || p.headroom.String() != "10%" || p.severity(fragmentation) != Warning {
		t.Errorf("flags: %+v", p)
	}
	for _, f := range []Flags{{Devices: []string{"x"}}, {Headroom: "x"}, {MaxGrowth: "-1%"}, {Rules: []string{"MP001"}}, {Rules: []string{"MP0001=off"}}} {
		if err := c.Force(&f); err == nil {
			t.Errorf("%+v is no error", f)
		}
	}
}

func TestAmount(t *testing.T) {
	for text, want := range map[string]tensor.Bytes{"5%": 50, "0.05": 50, "0": 0, "100 %": 1000, "1": 1000, "2KiB": 2048, "1.5 kB": 1500, "250%": 2500} {
		a, err := ParseAmount(text, maxGrowthShare)
		if err != nil || a.Of(1000) != want {
			t.Errorf("%s: %v, %v, want %d", text, a, err, want)
		}
	}
	for _, text := range []string{"", "-1%", "2", "NaN", "inf%", "GiB", "5 percent", "20000%"} {
		if a, err := ParseAmount(text, maxGrowthShare); err == nil {
			t.Errorf("%q is %v", text, a)
		}
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		glob, path string
		want       bool
	}{
		{"*.yaml", "a.yaml", true}, {"*.yaml", "x/y/a.yaml", true}, {"x/*.yaml", "x/a.yaml", true}, {"x/*.yaml", "x/y/a.yaml", false},
		{"x/**", "x/y/a.yaml", true}, {"x", "x/y/a.yaml", true}, {"x/", "x/a.yaml", true}, {"./x/a.yaml", "x/a.yaml", true}, {"y", "x/y/a.yaml", true},
		{"**/a.yaml", "a.yaml", true}, {"x/**/a.yaml", "x/a.yaml", true}, {"x/**/a.yaml", "x/1/2/a.yaml", true}, {"a?.yaml", "ab.yaml", true},
		{"/x", "x/a.yaml", true}, {"/x", "y/x/a.yaml", false}, {"a.yaml", "aXyaml", false}, {"a+(b).yaml", "a+(b).yaml", true}, {"x/**", "xy/a.yaml", false},
	} {
		if got := compileGlob(c.glob).MatchString(c.path); got != c.want {
			t.Errorf("%s, %s: %v", c.glob, c.path, got)
		}
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const minimal = "memplan: 1\nmodel: {preset: mlp}\n"
	write("a.yaml", minimal)
	write("bom.yaml", "\ufeff"+minimal)
	write("late.yml", "# a comment\nmodel: {preset: mlp}\nmemplan: 1\n")
	write("flow.yaml", "{memplan: 1, model: {preset: mlp}}")
	write("quoted.yaml", `"memplan": 1`)
	write("broken.yaml", "memplan: 1\n  - [")
	write("sub/deep/b.yaml", minimal)
	write("sub/values.yaml", "image: x\nspec:\n  memplan: 1\n")
	write("sub/notes.txt", minimal)
	write("drafts/c.yaml", minimal)
	write(".hidden/d.yaml", minimal)
	write(".memplan.yaml", "memplan: no spec\n")
	for link, target := range map[string]string{"loop": ".", "sub/self.yaml": "self.yaml", "link.yaml": "a.yaml"} {
		needs.Symlink(t, target, link)
	}
	none := func(string) bool { return false }
	c := config(t, "exclude: [drafts]")
	got, err := c.Find([]string{".", "./a.yaml", "sub", "drafts/c.yaml"}, false, none)
	want := []string{"a.yaml", "bom.yaml", "broken.yaml", "drafts/c.yaml", "flow.yaml", "late.yml", "link.yaml", "quoted.yaml", "sub/deep/b.yaml", "sub/self.yaml"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v\nwant %v", got, err, want)
	}
	// A link to a folder is followed where it is named.
	if got, err := c.Find([]string{"loop"}, false, none); err != nil || !slices.Contains(got, "loop/a.yaml") {
		t.Errorf("%v, %v", got, err)
	}
	empty := (*NoSpecs)(nil)
	if _, err := c.Find([]string{"a.yaml", "drafts"}, false, none); !errors.As(err, &empty) || !strings.Contains(err.Error(), "no specs in drafts") {
		t.Error(err)
	}
	// With onlySpecs what is no spec is left out.
	if got, err := c.Find([]string{"sub/values.yaml", "sub/notes.txt", "a.yaml", "drafts"}, true, none); err != nil || !slices.Equal(got, []string{"a.yaml", "sub/notes.txt"}) {
		t.Errorf("%v, %v", got, err)
	}
}
