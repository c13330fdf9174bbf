package spec

import (
	"strings"
	"testing"
)

// TestParseGPUs reads a file of devices, and broken ones.
func TestParseGPUs(t *testing.T) {
	all, err := ParseGPUs("d.yaml", []byte("- {name: a, memory: 8GiB, arch: 8.0, sms: 20}\n- {name: b, memory: 1GB, arch: sm_75, sms: 1, context: 5MiB}\n"))
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	if a, b := all[0], all[1]; a.Name.V != "a" || a.Memory.V != 8<<30 || a.Arch.V != "8.0" || a.SMs.V != 20 || a.Context != nil ||
		b.Arch.V != "sm_75" || b.Context.V != 5<<20 {
		t.Errorf("%+v %+v", a, b)
	}
	for _, c := range []struct{ text, want string }{
		{"", "d.yaml:1:1: "},
		{"a: 1", "d.yaml:1:1: a file of devices is a list"},
		{"- ", "d.yaml:1:2: a device needs name, memory, arch and sms; missing: name, memory, arch, sms"},
		{"- {name: a, memory: , arch: 80, sms: 1}", "d.yaml:1:3: a device needs name, memory, arch and sms; missing: memory"},
		{"- 7", "d.yaml:1:3: device must be a mapping, not 7"},
		{"- {name: a, memory: 8GiB, arch: 80}", "d.yaml:1:3: a device needs name, memory, arch and sms; missing: sms"},
		{"- {name: a, memory: 8GiB, arch: 80, sms: 0}", "d.yaml:1:42: sms must be at least 1, not 0"},
		{"- {name: a, memory: x, arch: 80, sms: 1}", "d.yaml:1:21: memory: "},
		{"- {name: a, memory: 0, arch: 80, sms: 1}", "d.yaml:1:21: memory must be a size such as 24GiB, not 0 B"},
		{"- &a {name: a, memory: 8GiB, arch: 80, sms: 1}\n- *a", "d.yaml:1:13: two devices are named \"a\""},
		{"- {name: '${x}', memory: 8GiB, arch: 80, sms: 1}", "d.yaml:1:13: unknown name"},
		{"- [", "d.yaml:"},
	} {
		if _, err := ParseGPUs("d.yaml", []byte(c.text)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: %v\nwant %s", c.text, err, c.want)
		}
	}
}
