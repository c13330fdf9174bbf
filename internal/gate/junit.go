package gate

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/memplan/memplan/internal/printable"
)

// The elements of JUnit's XML that Jenkins' schema (junit-10.xsd) and GitLab
// know.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		File     string      `xml:"file,attr,omitempty"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name      string         `xml:"name,attr"`
		ClassName string         `xml:"classname,attr"`
		Errors    []junitProblem `xml:"error"`
		Failures  []junitProblem `xml:"failure"`
		Out       string         `xml:"system-out,omitempty"`
	}
	junitProblem struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

var _ = Formats.Add(Format{Name: "junit", Doc: "for test reports (Jenkins, GitLab): a test case for each spec and GPU", Rank: 2, Write: writeJUnit})

// writeJUnit prints a suite for each spec with a case for each GPU. What makes
// the gate fail is a failure, a spec that cannot be read an error; the rest is
// output of the case.
func writeJUnit(w io.Writer, r *Result, s Style) error {
	top := junitSuites{Name: "memplan check"}
	suite := func(name, file string) *junitSuite {
		if n := len(top.Suites); n == 0 || top.Suites[n-1].Name != name {
			top.Suites = append(top.Suites, junitSuite{Name: name, File: file})
		}
		return &top.Suites[len(top.Suites)-1]
	}
	one := func(suite *junitSuite, name string, findings []Finding) {
		c := junitCase{Name: name, ClassName: suite.Name}
		var out strings.Builder
		out.WriteString(r.lenient("", "\n")) // where nothing else of the report is shown
		for _, f := range findings {
			line := fmt.Sprintf("%s:%d:%d: %s: %s [%s %s]\n", printable.Text(f.File), f.Line, f.Column, f.Severity, printable.Text(f.Message), f.Rule, f.Name)
			p := junitProblem{Type: f.Rule + " " + f.Name, Message: printable.Text(f.Message), Text: strings.TrimSuffix(line, "\n")}
			switch {
			case f.Rule == specError.ID:
				c.Errors = append(c.Errors, p)
			case r.failsOn(f.Severity):
				c.Failures = append(c.Failures, p)
			default:
				out.WriteString(line)
			}
		}
		c.Out = out.String()
		suite.Cases = append(suite.Cases, c)
		suite.Tests++
		top.Tests++
		if len(c.Errors) > 0 {
			suite.Errors++
			top.Errors++
		} else if len(c.Failures) > 0 {
			suite.Failures++
			top.Failures++
		}
	}
	for i := range r.Specs {
		c := &r.Specs[i]
		file := ""
		if isFile(c.Spec) {
			file = printable.Text(s.path(c.Spec))
		}
		name := "on " + printable.Text(c.GPU)
		if c.Fits == nil {
			name = "is read"
		}
		one(suite(printable.Text(c.Spec), file), name, c.Findings)
	}
	if len(r.Findings) > 0 {
		one(suite(printable.Text(r.Findings[0].File), ""), "gate", r.Findings)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(&top); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
