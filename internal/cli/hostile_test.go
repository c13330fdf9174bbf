package cli

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/memplan/memplan/internal/gate"
	"github.com/memplan/memplan/internal/report"
)

// hostileNames are names that mean something to what reads memplan's output.
var hostileNames = []string{
	// Ends of lines, of YAML's readers and others.
	"x\u2028hostNetwork: true\u2028y\u2029z: 1", "x\u0085hostNetwork: true\vy\fz", "x\rhostNetwork: true\r\n::error::y", "x\nhostNetwork: true\n#SBATCH --uid=0\ntouch PWNED\n::add-mask::x",
	// Commands of GitHub, Azure and TeamCity.
	"::error file=a::b", "\u00a0::set-env name=a::b%0A::error::y", "##[stop-commands]x", "x ##vso[task.setvariable variable=a]b ##teamcity[x]",
	// What is not seen, or turns what is.
	"\u202egnp.exe\u2066y\u2069", "\ufeffx\u200by\u00ad\U000e0041\ue000\ufffe", "x\x1b[31m\x07\u009b31m", "x\xff\xfe\xc0\x80\xed\xa0\xa8y",
	// Markdown, HTML, shells.
	"<b>&@team</b> `x` | [a](http://evil.example) ![i](//e) --> #1 www.evil.example ~~~", "$(touch PWNED)`touch PWNED`;touch PWNED'\"", "--config=evil.yaml", "-",
}

// memplan runs a command line in this process.
func memplan(in string, args ...string) (out, errs string, code int) {
	var stdout, stderr bytes.Buffer
	code = Main(args, &Streams{In: strings.NewReader(in), Out: &stdout, Err: &stderr, Env: func(string) (string, bool) { return "", false }})
	return stdout.String(), stderr.String(), code
}

// oldCommands are those that logs look for anywhere in a line.
var (
	oldCommands = regexp.MustCompile(`##\w*\[`)
	annotation  = regexp.MustCompile(`^::(error|warning|notice) (file=[^,:]*,line=\d+,col=\d+,)?title=MP\d{3} [a-z-]+::`)
)

// harmless checks what holds for all output: nothing steers a terminal, nothing
// is a command to a service but the annotations of the format for GitHub.
func harmless(t *testing.T, what, text string, annotated bool) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%s: not valid UTF-8: %q", what, text)
	}
	for i, c := range text {
		if c != '\n' && c != '\t' && !unicode.IsGraphic(c) {
			t.Errorf("%s: %U at byte %d: %q", what, c, i, text)
			break
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "::") && !(annotated && annotation.MatchString(line)) {
			t.Errorf("%s: a command: %q", what, line)
		}
		if oldCommands.MatchString(line) {
			t.Errorf("%s: a command of the old form: %q", what, line)
		}
	}
}

// shapes are what each format's output must be, whatever the names in it: given
// the output with a harmless name and with another.
var shapes = map[string]func(t *testing.T, what, plain, text string){
	"json":        func(t *testing.T, what, _, text string) { valid(t, what, json.Unmarshal([]byte(text), new(any))) },
	"codequality": func(t *testing.T, what, _, text string) { valid(t, what, json.Unmarshal([]byte(text), new(any))) },
	"sarif":       func(t *testing.T, what, _, text string) { valid(t, what, json.Unmarshal([]byte(text), new(any))) },
	"junit":       wellFormed,
	"kubernetes":  sameKeys,
	"hami":        sameKeys,
	"slurm":       sameDirectives,
	"markdown":    noMarkup,
	"text":        sameLines,
	"github":      sameLines,
}

func valid(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func wellFormed(t *testing.T, what, _, text string) {
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
	}
}

// yamlLines splits text at every end of a line that a reader of YAML 1.1 knows.
func yamlLines(text string) []string {
	return regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]").Split(text, -1)
}

func sameLines(t *testing.T, what, plain, text string) {
	if a, b := len(yamlLines(plain)), len(yamlLines(text)); a != b {
		t.Errorf("%s: %d lines, want %d:\n%s", what, b, a, text)
	}
}

// sameKeys says that a reader of YAML finds the same keys, to yaml.v3 and to one
// that takes each line by itself.
func sameKeys(t *testing.T, what, plain, text string) {
	keys := func(text string) (out []string) {
		var n yaml.Node
		valid(t, what, yaml.Unmarshal([]byte(text), &n))
		var walk func(n *yaml.Node)
		walk = func(n *yaml.Node) {
			for i, c := range n.Content {
				if n.Kind == yaml.MappingNode && i%2 == 0 {
					out = append(out, c.Value)
				}
				walk(c)
			}
		}
		walk(&n)
		for _, l := range yamlLines(text) {
			if before, _, ok := strings.Cut(l, ":"); ok && !strings.HasPrefix(l, "#") {
				out = append(out, before)
			}
		}
		return out
	}
	if a, b := keys(plain), keys(text); !slices.Equal(a, b) {
		t.Errorf("%s: keys %q, want %q", what, b, a)
	}
}

// sameDirectives says that a scheduler finds the same directives, but for the
// job's name, and a shell nothing to do.
func sameDirectives(t *testing.T, what, plain, text string) {
	sameLines(t, what, plain, text)
	jobName := regexp.MustCompile(`(?m)^#SBATCH --job-name=[a-z0-9-]+$`)
	directives := func(text string) []string {
		return regexp.MustCompile(`(?m)^#SBATCH.*$`).FindAllString(jobName.ReplaceAllString(text, "#SBATCH name"), -1)
	}
	if a, b := directives(plain), directives(text); !slices.Equal(a, b) {
		t.Errorf("%s: %q, want %q", what, b, a)
	}
	for _, l := range yamlLines(text) {
		if l != "" && !strings.HasPrefix(l, "#") {
			t.Errorf("%s: not a comment: %q", what, l)
		}
	}
	sh := exec.Command("sh", "-n")
	sh.Stdin = strings.NewReader(text)
	if said, err := sh.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", what, err, said)
	}
}

// noMarkup says that Markdown has no element, link, image or mention but
// memplan's own.
func noMarkup(t *testing.T, what, plain, text string) {
	sameLines(t, what, plain, text)
	for _, own := range []string{"<!-- memplan check -->", "<details><summary>", "</summary>", "</details>"} {
		text = strings.ReplaceAll(text, own, "")
	}
	if bad := regexp.MustCompile(`[<>]|@[A-Za-z0-9]|[^\\]\[|://|www\.|[^&]#\d|[^\\\n]~`).FindString(text); bad != "" {
		t.Errorf("%s: %q in\n%s", what, bad, text)
	}
}

// hostileRun is a command with a name in it: the files that it needs, by path,
// and its command line, in which FORMAT stands for each of the formats.
type hostileRun struct {
	line    []string
	files   map[string]string
	formats []string
	free    bool // what is said depends on the name
}

func (r hostileRun) any() hostileRun {
	r.free = true
	return r
}

// hostileRuns puts a name into every place of every command that takes one.
func hostileRuns(name string) map[string][]hostileRun {
	file := strings.NewReplacer("/", "_", "\x00", "_").Replace(name) + ".yaml"
	const small = "\nmodel: {preset: lenet}\ndevice: {gpu: t4}\n"
	quoted := strconv.Quote(name)
	if !utf8.ValidString(name) {
		quoted = `"x"`
	}
	spec := map[string]string{"named.yaml": "memplan: 1\nname: " + quoted + small, file: "memplan: 1" + small, "other.yaml": "memplan: 1\nname: other\nmodel: {preset: lenet}\ntrain: {batch_size: 7}\ndevice: {gpu: t4}\n",
		"oom/" + file:    "memplan: 1\nmodel: {preset: lenet}\ntrain: {batch_size: 4000000}\ndevice: {gpu: t4}\n",
		"wrong/" + file:  "memplan: 1\nmodel:\n  layers: [{" + quoted + ": 3}]\n  " + quoted + ": 1\n",
		"hf/config.json": `{"model_type": ` + jsonString(name) + `}`,
		"raw.yaml":       "memplan: 1\nname: \"" + name + "\"\nmodel: {layers: [Linera]} # " + name + "\n",
		"base.json":      `{"memplan_baseline": 1, "memplan": ` + jsonString(name) + `, "specs": [{"spec": ` + jsonString(name) + `, "device": "", "gpu": "t4", "batch_size": 1, "result": "FITS", "reserved_bytes": 1, "allocated_bytes": 1}]}`,
		"conf.yaml":      "rules: {" + quoted + ": off}\n",
		"gpus.yaml":      "device_table: table.yaml\ndevices: [" + quoted + "]\n",
		"table.yaml":     "- {name: " + quoted + ", memory: 20GiB, arch: 8.9, sms: 60}\n",
		"trace.json": `{"memplan_trace":1,"capacity_bytes":1048576,"phases":["setup","forward"],"categories":["parameters"],"ops":["",` + jsonString(name) + `],"layers":["",` + jsonString(name) + `],
"contexts":[[1,1,1,1,0,0]],"events":[["a",0,9999999,0,0]]}`,
		"log": "x " + name + "\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 1.00 GiB of which 1.00 MiB is free. " + name + " Including non-PyTorch memory, this process has 1.00 GiB memory in use.\n" + name + "\n",
	}
	spec["log "+file] = spec["log"]
	spec["train.rec"] = strings.Join([]string{
		`["memplan",1,{"torch":"2.6","gpu":{"key":"t4"},"argv":[` + jsonString(name) + `]}]`, `["frame",` + jsonString(name) + `,1,` + jsonString(name) + `]`,
		`["schema",` + jsonString("x::"+strings.NewReplacer("(", "", " ", "").Replace(name)+"(Tensor x) -> Tensor") + `]`, `["meta","float32",[256],[1]]`,
		`["storage","cuda:0",1024,"input"]`, `["enter",` + jsonString(name) + `,` + jsonString(name) + `]`, `["storage","cuda:0",1024,"op"]`,
		`["op",0,[{"t":[0,0,0,3]}],{},[{"t":[1,0,0,0]}],{}]`, `["asked",` + jsonString(name) + `,` + jsonString(name) + `,0]`, `["doubt",` + jsonString(name) + `,0]`,
		`["phase","step",1]`, `["end",{"reason":"error","text":` + jsonString(name) + `,"frame":0}]`,
	}, "\n")
	spec["broken.rec"] = "[\"memplan\",1,{}]\n[" + jsonString(name) + "]\n"
	spec["job.yml"] = "base_model: " + quoted + "\nmicro_batch_size: 1\n" + quoted + ": 1\n"
	spec["job/"+file] = "base_model: gpt2\nmicro_batch_size: 1\nsequence_len: 64\ndatasets: [{path: " + quoted + "}]\n"
	spec["report.json"] = `{"memplan_report": 1, "spec": ` + jsonString(name) + `, "model": {"name": ` + jsonString(name) + `}, "device": {"display_name": ` + jsonString(name) + `}, "layers": [{"layer": ` + jsonString(name) + `, "kind": ` + jsonString(name) + `, "total_bytes": 5}], "not_modelled": [` + jsonString(name) + `]}`
	as := func(formats []string, line ...string) hostileRun {
		return hostileRun{line: line, files: spec, formats: formats}
	}
	none := []string{""}
	var runs, diffs []string
	runs = append(runs, report.RunFormats.Names()...)
	diffs = append(diffs, report.DiffFormats.Names()...)
	f, path := "--format=FORMAT", "./"+file
	return map[string][]hostileRun{
		"estimate": {
			as(report.Formats.Names(), "estimate", f, "--", "named.yaml"), as(report.Formats.Names(), "estimate", f, "--", path), as([]string{"slurm"}, "estimate", f, "oom/"+file),
			as(none, "estimate", "wrong/"+file), as(none, "estimate", "raw.yaml"), as(none, "estimate", "no"+file), as(none, "estimate", "hf/config.json"),
			as(none, "estimate", "--", name), as(none, "estimate", "--gpu="+name, "other.yaml"), as(none, "estimate", "--set="+name, "other.yaml"), as(none, "estimate", "--set=name="+name, "other.yaml"),
			as(none, "estimate", "--alloc-conf="+name, "other.yaml"), as(none, "estimate", "--format="+name, "other.yaml"), as(none, "estimate", "--"+name), as(none, "estimate", "preset:"+name), as(none, "estimate", "HEAD:"+name),
			as(none, "estimate", "log "+file), as(report.Formats.Names(), "estimate", f, "train.rec").any(), as(none, "estimate", "broken.rec"),
		},
		"check": {
			as(gate.Formats.Names(), "check", "--headroom=99%", f, "--", path, "oom/"+file), as(gate.Formats.Names(), "check", f, "--", "wrong/"+file).any(), as(gate.Formats.Names(), "check", f, "named.yaml").any(), as(gate.Formats.Names(), "check", f, "--against=base.json", "other.yaml"), as(none, "check", "raw.yaml"),
			as(gate.Formats.Names(), "check", f, "hf/config.json"), as(gate.Formats.Names(), "check", f, "--config=gpus.yaml", "other.yaml").any(),
			as(none, "check", "--config=conf.yaml"), as(none, "check", "--config="+name), as(none, "check", "--against="+name, "other.yaml"), as(none, "check", "--against-git="+name, "other.yaml"), as(none, "check", "--report="+name, "other.yaml"),
			as(none, "check", "--write-baseline=-", "--", path), as(none, "check", "no"+file), as(none, "check", "--gpu="+name, "other.yaml"),
		},
		"diff": {
			as(diffs, "diff", f, "--", "named.yaml", path), as(diffs, "diff", f, path, "other.yaml"), as(diffs, "diff", f, "report.json", "other.yaml"), as(none, "diff", "--", name, "other.yaml"),
		},
		"run":      {as(runs, "run", "--backend=cpu", f, "--", path), as(none, "run", "--backend="+name, "other.yaml"), as(none, "run", "--data="+name, "other.yaml")},
		"explain":  {as([]string{"text", "json"}, "explain", f, "log "+file), as(none, "explain", "log", "--spec", path), as(none, "explain", "--", name)},
		"simulate": {as([]string{"text", "json"}, "simulate", f, "trace.json"), as(none, "simulate", "--map", "trace.json"), as(none, "simulate", path), as(none, "simulate", "log "+file), as(none, "simulate", "--alloc-conf="+name, "trace.json")},
		"export": {
			as(none, "export", "torch", "named.yaml"), as(none, "export", "torch", path), as(none, "export", "trace", "named.yaml"), as(none, "export", "trace", "--text", path),
			as(none, "export", "torch", "--out-file=no/"+file, "other.yaml"), as(none, "export", name),
		},
		"record": {
			as(none, "record", "--batch="+name, "--", "memplan-none"), as(none, "record", "--gpu="+name, "--", "memplan-none"), as(none, "record", "--answer="+name, "--", "memplan-none"),
			as(none, "record", "--batch=x=1,2,3", "--", name),
		},
		"calibrate":  {as(none, "calibrate", "--python="+name), as(none, "calibrate", "--gpu="+name, "--nvidia-smi=1GiB"), as(none, "calibrate", "--gpu=t4", "--nvidia-smi="+name)},
		"import":     {as(none, "import", "job.yml"), as(none, "import", "job/"+file), as(none, "import", "--", path), as(none, "import", "--", name)},
		"schema":     {as(none, "schema", "--desugar", "named.yaml"), as(none, "schema", "--desugar", path), as(none, "schema", "--", name)},
		"list":       {as(none, "list", "--", name), as(none, "list", "devices", "--", name)},
		"completion": {as(none, "completion", "--", name)},
		"version":    {as(none, "version", "--", name)},
	}
}

func jsonString(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}

// TestHostileNames puts hostile names into every command and format: what comes
// out has the form that it has with harmless names, and nothing that a terminal, a
// shell, a service or a reader of YAML obeys.
func TestHostileNames(t *testing.T) {
	plain := map[string]string{} // output with a harmless name
	for i, name := range append([]string{"plain"}, hostileNames...) {
		if testing.Short() && i%6 != 0 {
			continue
		}
		t.Run(strconv.Quote(name), func(t *testing.T) {
			t.Chdir(t.TempDir())
			runs := hostileRuns(name)
			for _, c := range newRoot(System()).Commands() {
				if _, ok := runs[c.Name()]; !ok && c.Name() != "help" {
					t.Errorf("the command %s is not tried", c.Name())
				}
			}
			for command, list := range runs {
				if command == "estimate" {
					for path, text := range list[0].files {
						if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
							t.Fatal(err)
						}
						if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			for _, command := range []string{"estimate", "check", "diff", "run", "record", "calibrate", "explain", "simulate", "export", "schema", "list", "completion", "version"} {
				for n, r := range runs[command] {
					for _, format := range r.formats {
						line := slices.Clone(r.line)
						for k := range line {
							line[k] = strings.ReplaceAll(line[k], "FORMAT", format)
						}
						out, errs, code := memplan("", line...)
						what := fmt.Sprintf("%q", line)
						harmless(t, what+" (standard error)", errs, false)
						harmless(t, what, out, format == "github")
						if strings.Contains(errs, "internal error") {
							t.Errorf("%s: %s", what, errs)
						}
						key := fmt.Sprint(command, n, format)
						if i == 0 {
							plain[key] = out
							if _, ok := shapes[format]; format != "" && !ok {
								t.Errorf("what the format %s must look like is not said", format)
							}
							if format != "" && out == "" {
								t.Errorf("%s: exit code %d, no output: %s", what, code, errs)
							}
						} else if format != "" && plain[key] != "" && out != "" {
							before := plain[key]
							if r.free {
								before = out
							}
							shapes[format](t, what, before, out)
						}
					}
				}
			}
		})
	}
}

// What stands in JSON, a script or YAML is the name itself.
func TestHostileNamesAreKept(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range hostileNames {
		if !utf8.ValidString(name) || strings.IndexFunc(name, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) >= 0 {
			continue // refused
		}
		if err := os.WriteFile("s.yaml", []byte("memplan: 1\nname: "+strconv.Quote(name)+"\nmodel: {preset: lenet}\ndevice: {gpu: t4}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		out, errs, _ := memplan("", "estimate", "--format=json", "s.yaml")
		var rep struct{ Model struct{ Name string } }
		if err := json.Unmarshal([]byte(out), &rep); err != nil || rep.Model.Name != name {
			t.Errorf("%q: %v, %q %s", name, err, rep.Model.Name, errs)
		}
		out, errs, _ = memplan("", "schema", "--desugar", "s.yaml")
		var spec struct{ Name string }
		if err := yaml.Unmarshal([]byte(out), &spec); err != nil || spec.Name != name {
			t.Errorf("%q: %v, %q %s", name, err, spec.Name, errs)
		}
	}
}
