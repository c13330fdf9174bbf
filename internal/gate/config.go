package gate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/spec"
)

// ConfigName is the file that is looked for from the working directory upward.
const ConfigName = ".memplan.yaml"

// Config is what a project asks of its specs.
type Config struct {
	Path string      `yaml:"-"` // "" without a file
	GPUs []*spec.GPU `yaml:"-"` // of device_table

	root     string // the folder that globs and files are relative to, absolute
	settings []setting
	exclude  *globs

	// Outside reports a link that leads out of the project, which is listed without
	// being read; nil: none does.
	Outside func(path string) bool `yaml:"-"`

	globCount int // of all globs

	Settings
	DeviceTable spec.String   `yaml:"device_table" doc:"file that describes more GPUs, as estimate --devices takes it"`
	Baseline    spec.String   `yaml:"baseline" doc:"baseline that growth is measured against"`
	Exclude     []spec.String `yaml:"exclude" doc:"globs of files and folders in which no specs are looked for"`
	FailOn      spec.String   `yaml:"fail_on" enum:"error|warning|note|never" default:"error" doc:"the lightest finding that makes the gate fail"`
	Overrides   *spec.Value   `yaml:"overrides" doc:"settings for some specs: [{specs: [globs], and settings}]; later ones win"`
}

// Settings are the keys that may stand in overrides too.
type Settings struct {
	Devices          []spec.String `yaml:"devices" doc:"GPUs: a spec that names none is checked on each; in an override every spec"`
	Headroom         spec.String   `yaml:"headroom" doc:"memory that must stay free: a share of the usable memory, or a size"`
	MaxGrowth        spec.String   `yaml:"max_growth" doc:"how much a peak may grow against the baseline: a share, or a size"`
	MaxFragmentation spec.String   `yaml:"max_fragmentation" doc:"how much of the reserved memory may lie unused: a share, or a size"`
	Rules            *spec.Value   `yaml:"rules" doc:"severities of rules: {MP005: off}"`
}

// override is one item of Config.Overrides.
type override struct {
	Specs []spec.String `yaml:"specs"`
	Settings
}

// setting is a decoded Settings; what is not given is nil.
type setting struct {
	specs                           *globs // nil: all
	force                           bool   // devices are for specs that name a GPU, too
	devices                         []string
	headroom, growth, fragmentation *Amount
	rules                           map[string]Severity
}

// The defaults of settings, and the greatest shares that make sense.
const (
	DefaultGrowth        = "5%"
	defaultFragmentation = "25%"

	whole          = 1
	maxGrowthShare = 100
)

// ParseConfig reads a configuration, nil for none. Its globs are relative to dir,
// an absolute path; readFile reads the files that it names. The error, if any, is a
// *spec.Errors, or that of reading such a file.
func ParseConfig(path, dir string, text []byte, readFile func(name string) ([]byte, error)) (*Config, error) {
	c := &Config{Path: path, root: dir}
	if nothing(text) {
		text = []byte("{}")
	}
	d := spec.ReadDocument(path, text)
	if d.Root == nil {
		return nil, d.Errs.Err()
	}
	d.Section(d.Root, c, "configuration")
	if t := &c.DeviceTable; t.Set {
		list, err := readFile(t.V)
		if err != nil {
			d.Errs.Addf(t.At, "device_table: %v", err)
		} else if c.GPUs, err = spec.ParseGPUs(t.V, list); err != nil {
			if wrong := (*spec.Errors)(nil); errors.As(err, &wrong) {
				wrong.Private = true
			}
			return nil, err
		}
	}
	c.exclude = c.globs(d, c.Exclude)
	c.settings = append(c.settings, c.decode(d, &c.Settings))
	if v := c.Overrides; v != nil && v.Kind != spec.List && v.Kind != spec.Null {
		d.Errs.Addf(v.Span, "overrides must be a list of mappings with the key specs, not %s", v.Describe())
	} else if v != nil {
		for _, it := range v.Items {
			var o override
			d.Section(it, &o, "override")
			if len(o.Specs) == 0 {
				d.Errs.Addf(it.Span, "an override needs specs, globs of the files that it is for")
			}
			s := c.decode(d, &o.Settings)
			s.specs, s.force = c.globs(d, o.Specs), true
			c.settings = append(c.settings, s)
		}
	}
	return c, d.Errs.Err()
}

// nothing reports a file of comments and empty lines.
func nothing(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		if t := strings.TrimSpace(line); t != "" && t[0] != '#' {
			return false
		}
	}
	return true
}

// decode checks settings.
func (c *Config) decode(d *spec.Document, s *Settings) setting {
	var out setting
	for _, g := range s.Devices {
		if err := c.knows(g.V); err != nil {
			d.Errs.Addf(g.At, "%v", err)
		}
		out.devices = append(out.devices, g.V)
	}
	for _, a := range []struct {
		key  string
		text spec.String
		most float64
		to   **Amount
	}{
		{"headroom", s.Headroom, whole, &out.headroom},
		{"max_growth", s.MaxGrowth, maxGrowthShare, &out.growth},
		{"max_fragmentation", s.MaxFragmentation, whole, &out.fragmentation},
	} {
		if !a.text.Set {
			continue
		}
		n, err := ParseAmount(a.text.V, a.most)
		if err != nil {
			d.Errs.Addf(a.text.At, "%s: %v", a.key, err)
		}
		*a.to = n
	}
	if v := s.Rules; v != nil && v.Kind != spec.Null {
		if v.Kind != spec.Map {
			d.Errs.Addf(v.Span, "rules must be a mapping from rules to severities, such as {MP005: off}, not %s", v.Describe())
		}
		out.rules = map[string]Severity{}
		for _, p := range v.Pairs {
			if LookupRule(p.Key.Str) == nil {
				d.Errs.Unknown(p.Key.Span, "rule", p.Key.Str, RuleNames())
				continue
			}
			id, severity, err := ruleSetting(p.Key.Str, p.Value.Str)
			if err != nil {
				d.Errs.Addf(p.Value.Span, "%v", err)
				continue
			}
			out.rules[id] = severity
		}
	}
	return out
}

// knows reports why there is no GPU of that name.
func (c *Config) knows(name string) error {
	for _, g := range c.GPUs {
		if strings.EqualFold(g.Name.V, name) {
			return nil
		}
	}
	_, err := device.Lookup(name)
	return err
}

// Flags are settings of the command line; they come after the configuration's.
type Flags struct {
	Devices             []string
	Headroom, MaxGrowth string   // "": not given
	Rules               []string // RULE=SEVERITY
	FailOn              string
}

// Force adds settings of the command line. The error says which is wrong.
func (c *Config) Force(f *Flags) error {
	s := setting{devices: f.Devices, force: true, rules: map[string]Severity{}}
	for _, g := range f.Devices {
		if err := c.knows(g); err != nil {
			return fmt.Errorf("--gpu: %w", err)
		}
	}
	var err error
	if f.Headroom != "" {
		if s.headroom, err = ParseAmount(f.Headroom, whole); err != nil {
			return fmt.Errorf("--headroom: %w", err)
		}
	}
	if f.MaxGrowth != "" {
		if s.growth, err = ParseAmount(f.MaxGrowth, maxGrowthShare); err != nil {
			return fmt.Errorf("--max-growth: %w", err)
		}
	}
	for _, r := range f.Rules {
		name, severity, ok := strings.Cut(r, "=")
		if !ok {
			return fmt.Errorf("--rule %s: must be RULE=SEVERITY, such as MP005=off", r)
		}
		id, sev, err := ruleSetting(name, severity)
		if err != nil {
			return fmt.Errorf("--rule %s: %w", r, err)
		}
		s.rules[id] = sev
	}
	if f.FailOn != "" {
		c.FailOn.V = f.FailOn
	}
	c.settings = append(c.settings, s)
	return nil
}

// policy is what holds for one spec.
func (c *Config) policy(path string) *setting {
	p := &setting{rules: map[string]Severity{}}
	p.growth, _ = ParseAmount(DefaultGrowth, maxGrowthShare)
	p.fragmentation, _ = ParseAmount(defaultFragmentation, whole)
	for i := range c.settings {
		s := &c.settings[i]
		if s.specs != nil && !s.specs.match(path) {
			continue
		}
		if len(s.devices) > 0 {
			p.devices, p.force = s.devices, s.force
		}
		for _, a := range []struct{ to, from **Amount }{{&p.headroom, &s.headroom}, {&p.growth, &s.growth}, {&p.fragmentation, &s.fragmentation}} {
			if *a.from != nil {
				*a.to = *a.from
			}
		}
		for id, severity := range s.rules {
			p.rules[id] = severity
		}
	}
	return p
}

// severity is that of a rule for a spec.
func (s *setting) severity(r *Rule) Severity {
	if given, ok := s.rules[r.ID]; ok {
		return given
	}
	return r.Severity
}

// FailOnNames are the values of fail_on.
var FailOnNames = []string{string(Error), string(Warning), string(Note), "never"}

// FailsOn reports whether a finding of that severity makes the gate fail.
func (c *Config) FailsOn(s Severity) bool {
	if c.FailOn.V == "never" {
		return false
	}
	return s.weight() >= Severity(c.FailOn.V).weight()
}
