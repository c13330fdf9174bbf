package gate

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/needs"
)

// hostile is text that formats must escape: what steers terminals, ends
// workflow commands, closes elements, links, mentions.
const hostile = "evil\x1b[31m\r\n::error::x%0A,:|<b>&]]>`@team` ${{ x }} \u202e\x00\x9b\xff"

// results are several outcomes: nothing found, all severities, specs that cannot
// be read, names that mean harm.
func results(t *testing.T) map[string]*Result {
	t.Helper()
	specs := map[string]string{
		"fits.yaml":        "memplan: 1\nname: fits\nmodel: {preset: mlp}\ndevice: {gpu: t4}\n",
		"oom.yaml":         "memplan: 1\nmodel: {preset: gpt}\ntrain:\n  batch_size: 512\ndevice: {gpu: t4}\nparallel: {tensor: 2}\n",
		"wrong.yaml":       "memplan: 1\nmodel:\n  layers: [Linera]\n",
		"a b/ü,:%.yaml":    "memplan: 1\nmodel: {preset: lenet}\nparams: {unused: 1}\n",
		hostile + ".yaml":  "memplan: 1\nname: \"evil |<b> @team ::error::\"\nmodel: {preset: gpt}\ntrain: {batch_size: 4096}\n",
		"preset:resnet":    "memplan: 1\nmodel: {preset: resnet}\n",
		"/abs/path/m.yaml": "memplan: 1\nmodel: {preset: mlp}\n",
	}
	check := func(conf string, paths ...string) *Result {
		c := config(t, conf)
		slices.Sort(paths)
		r, err := Check(context.Background(), &Options{Specs: paths, Config: c, Recipe: func(path string) (*estimate.Recipe, error) {
			return &estimate.Recipe{Path: path, Text: []byte(specs[path])}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	all := make([]string, 0, len(specs))
	for path := range specs {
		all = append(all, path)
	}
	none := check("rules: {MP006: off, MP012: off}", "fits.yaml")
	if none.Failed || len(none.All()) > 0 {
		t.Errorf("%+v", none)
	}
	everything := check("devices: [t4, rtx-4090]\nheadroom: 99%", all...)
	if !everything.Failed || everything.Errors == 0 || everything.Warnings == 0 || everything.Notes == 0 || everything.Unread != 1 {
		t.Errorf("%+v", everything.All())
	}
	everything.Against = hostile
	everything.Findings = []Finding{{Rule: "MP010", Name: "baseline", Severity: Note, File: hostile, Line: 3, Column: 1, Message: hostile}}
	return map[string]*Result{"none": none, "everything": everything, "empty": {Version: 1, Specs: []Checked{}, failsOn: func(Severity) bool { return false }}}
}

// render prints a result in a format and checks what holds for all: the text is
// UTF-8 and has no characters that steer terminals.
func render(t *testing.T, format string, r *Result) []byte {
	t.Helper()
	f, err := LookupFormat(format)
	if err != nil {
		t.Fatal(err)
	}
	text, err := f.Print(r, Style{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(text) {
		t.Errorf("%s: not valid UTF-8", format)
	}
	for i, c := range string(text) {
		if c != '\n' && unicode.IsControl(c) || format != "json" && unicode.Is(unicode.Bidi_Control, c) {
			t.Errorf("%s: %U at byte %d", format, c, i)
		}
	}
	return text
}

func TestFormats(t *testing.T) {
	for name, r := range results(t) {
		for _, f := range Formats.All() {
			render(t, f.Name, r)
			if name == "everything" && bytes.Count(render(t, "text", r), []byte("\n")) < len(r.All()) {
				t.Error("findings are missing")
			}
		}
	}
	if _, err := LookupFormat("sarf"); err == nil || !strings.Contains(err.Error(), `did you mean "sarif"?`) {
		t.Error(err)
	}
}

// SARIF is held against its schema, as OASIS published it with errata 01.
func TestSARIF(t *testing.T) {
	packed, err := os.Open(needs.File(t, "sarif", "sarif-2.1.0.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(z)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("sarif.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("sarif.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range results(t) {
		text := render(t, "sarif", r)
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var log sarifLog
		if err := json.Unmarshal(text, &log); err != nil {
			t.Fatal(err)
		}
		run := log.Runs[0]
		if len(run.Results) != len(r.All()) {
			t.Errorf("%s: %d results of %d findings", name, len(run.Results), len(r.All()))
		}
		for _, res := range run.Results {
			if run.Tool.Driver.Rules[res.RuleIndex].ID != res.RuleID {
				t.Errorf("rule %s has index %d", res.RuleID, res.RuleIndex)
			}
		}
		if run.Invocations[0].Successful != (r.Unread == 0) {
			t.Errorf("%s: executionSuccessful", name)
		}
	}
	// The schema is one that refuses.
	if v, _ := jsonschema.UnmarshalJSON(strings.NewReader(`{"version": "2.1.0", "runs": [{"tool": {}}]}`)); schema.Validate(v) == nil {
		t.Error("a run without a driver is accepted")
	}
	for path, want := range map[string]string{"a b/ü,:%.yaml": "a%20b/%C3%BC,:%25.yaml", "/x/y.yaml": "file:///x/y.yaml", "preset:gpt": "memplan:preset:gpt", "../x.yaml": "../x.yaml", "a:b.yaml": "./a:b.yaml"} {
		if got := artifact(path); got.URI != want {
			t.Errorf("%s: %s, want %s", path, got.URI, want)
		}
	}
}

// element is an element of XML as it was read.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
	Text     string     `xml:",chardata"`
}

func (e *element) attr(name string) (string, bool) {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value, true
		}
	}
	return "", false
}

// junitSchema says what Jenkins' junit-10.xsd demands of the elements that are
// written: attributes that must be there, those that may, and children.
var junitSchema = map[string]struct{ must, may, children []string }{
	"testsuites": {nil, []string{"name", "time", "tests", "failures", "errors"}, []string{"testsuite"}},
	"testsuite": {[]string{"name", "tests", "failures", "errors"},
		[]string{"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
		[]string{"testsuite", "properties", "testcase", "system-out", "system-err"}},
	"testcase":   {[]string{"name"}, []string{"time", "classname", "group"}, []string{"skipped", "error", "failure", "system-out", "system-err"}},
	"failure":    {nil, []string{"type", "message"}, nil},
	"error":      {nil, []string{"type", "message"}, nil},
	"system-out": {nil, nil, nil},
}

func TestJUnit(t *testing.T) {
	for name, r := range results(t) {
		text := render(t, "junit", r)
		d := xml.NewDecoder(bytes.NewReader(text))
		var top element
		if err := d.Decode(&top); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if top.XMLName.Local != "testsuites" {
			t.Errorf("%s: root %s", name, top.XMLName.Local)
		}
		var walk func(e *element)
		walk = func(e *element) {
			kind := e.XMLName.Local
			s, ok := junitSchema[kind]
			if !ok || e.XMLName.Space != "" {
				t.Errorf("%s: element %v is unknown", name, e.XMLName)
				return
			}
			for _, m := range s.must {
				if _, ok := e.attr(m); !ok {
					t.Errorf("%s: %s needs %s", name, kind, m)
				}
			}
			for _, a := range e.Attrs {
				if !slices.Contains(s.must, a.Name.Local) && !slices.Contains(s.may, a.Name.Local) {
					t.Errorf("%s: %s has %s", name, kind, a.Name.Local)
				}
			}
			if len(s.children) > 0 && strings.TrimSpace(e.Text) != "" {
				t.Errorf("%s: text %q in %s", name, e.Text, kind)
			}
			for i := range e.Children {
				if !slices.Contains(s.children, e.Children[i].XMLName.Local) {
					t.Errorf("%s: %s in %s", name, e.Children[i].XMLName.Local, kind)
				}
				walk(&e.Children[i])
			}
		}
		walk(&top)
		// The counts are those of the cases.
		failed, wrong, cases := 0, 0, 0
		for _, suite := range top.Children {
			for _, c := range suite.Children {
				cases++
				has := func(kind string) bool {
					return slices.ContainsFunc(c.Children, func(e element) bool { return e.XMLName.Local == kind })
				}
				if has("error") {
					wrong++
				} else if has("failure") {
					failed++
				}
			}
		}
		for attr, n := range map[string]int{"tests": cases, "failures": failed, "errors": wrong} {
			if got, _ := top.attr(attr); got != strconv.Itoa(n) {
				t.Errorf("%s: %s is %s, counted %d", name, attr, got, n)
			}
		}
		if (failed+wrong > 0) != r.Failed && name != "empty" {
			t.Errorf("%s: %d failures and %d errors; the gate says %v", name, failed, wrong, r.Failed)
		}
	}
}

// Each line of the format for GitHub is one workflow command, or the verdict, what it
// does not enforce and what figures leave out.
func TestGitHub(t *testing.T) {
	command := regexp.MustCompile(`^::(error|warning|notice) (file=[^,:]*,line=\d+,col=\d+,)?title=MP\d{3} [a-z-]+::.*$`)
	for name, r := range results(t) {
		lines := strings.Split(strings.TrimSuffix(string(render(t, "github", r)), "\n"), "\n")
		for len(r.LeftOut) > 0 && strings.HasPrefix(lines[len(lines)-1], "not in the figures of ") {
			lines = lines[:len(lines)-1]
		}
		if l := r.leniency(); l != "" && lines[len(lines)-1] == "not enforced: "+l {
			lines = lines[:len(lines)-1]
		}
		if len(lines) != len(r.All())+1 {
			t.Errorf("%s: %d lines of %d findings", name, len(lines), len(r.All()))
		}
		for _, l := range lines[:len(lines)-1] {
			if !command.MatchString(l) {
				t.Errorf("%s: %s", name, l)
			}
		}
	}
}

// In Markdown every row of the table has as many cells, and names mention nobody
// and open no element.
func TestMarkdown(t *testing.T) {
	text := string(render(t, "markdown", results(t)["everything"]))
	if !strings.HasPrefix(text, markdownMark+"\n") {
		t.Error("no mark")
	}
	cells := 0
	for line := range strings.Lines(text) {
		if n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); strings.HasPrefix(line, "|") {
			if cells == 0 {
				cells = n
			}
			if n != cells {
				t.Errorf("%d cells of %d: %s", n-1, cells-1, line)
			}
		}
		if strings.Contains(line, "@team") || strings.Contains(strings.TrimPrefix(line, markdownMark), "<b") {
			t.Error(line)
		}
	}
}

// GitLab reads a list of findings, of which each has a fingerprint of its own.
func TestCodeQuality(t *testing.T) {
	for name, r := range results(t) {
		var list []codeQuality
		if err := json.Unmarshal(render(t, "codequality", r), &list); err != nil || list == nil {
			t.Fatalf("%s: %v, %v", name, list, err)
		}
		if len(list) != len(r.All()) {
			t.Errorf("%s: %d of %d findings", name, len(list), len(r.All()))
		}
		seen := map[string]bool{}
		for _, q := range list {
			if seen[q.Fingerprint] || q.Description == "" || q.Check == "" || q.Severity == "" || q.Location.Path == "" || q.Location.Lines.Begin < 1 {
				t.Errorf("%s: %+v", name, q)
			}
			seen[q.Fingerprint] = true
		}
	}
}
