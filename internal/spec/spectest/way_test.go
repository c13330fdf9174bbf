//go:build unix

package spectest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/exporttorch"
	"github.com/memplan/memplan/internal/gate"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
)

// mutant is a spec to be tried, with the files and flags that go with it.
type mutant struct {
	text  []byte
	files map[string][]byte
	set   []string

	mu      sync.Mutex
	budgets []*limit.Budget // of the command that is tried
}

// defaults are the limits of a spec in a check unless the command line says
// otherwise.
var defaults = limit.Limits{Memory: limit.CheckMemory, Time: limit.DefaultTime, Work: limit.CheckWork}

// budget opens the budget of a job as commands do.
func (m *mutant) budget(ctx context.Context) *limit.Budget {
	b := limit.New(ctx, defaults)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.budgets = append(m.budgets, b)
	return b
}

// close ends the budgets.
func (m *mutant) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.budgets {
		b.Close()
	}
	m.budgets = nil
}

func (m *mutant) readFile(name string) ([]byte, error) {
	if text, ok := m.files[name]; ok {
		return text, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (m *mutant) recipe() *estimate.Recipe {
	return &estimate.Recipe{Path: "mutant.yaml", Text: m.text, Options: spec.Options{Set: m.set}, ReadFile: m.readFile}
}

// way takes a mutant through all that commands do with a spec, within the limits
// that they have by default, and reports whether it was played. It calls done after
// each. The error is what should not be, beside
// panics: an error of the wrong type, a mistake without a place.
func (m *mutant) way(done func()) (accepted bool, err error) {
	defer func() { m.close(); done() }()
	if err := m.check(); err != nil {
		return false, err
	}
	m.close()
	done()
	r := m.recipe()
	r.Budget = m.budget(context.Background())
	j, err := r.Job()
	if err != nil {
		return false, proper(err)
	}
	o, err := estimate.Run(j)
	if err != nil {
		return false, proper(err)
	}
	rep := o.Report()
	for _, f := range report.Formats.All() {
		if err := f.Write(io.Discard, rep, report.Options{Top: 8}); err != nil {
			return true, fmt.Errorf("format %s: %w", f.Name, err)
		}
	}
	for _, f := range report.DiffFormats.All() {
		if err := f.Write(io.Discard, report.Compare(rep, rep), report.DiffOptions{Top: 8}); err != nil {
			return true, fmt.Errorf("diff in format %s: %w", f.Name, err)
		}
	}
	m.close()
	done()
	if err := exporttorch.Write(io.Discard, j.Program, exporttorch.Options{Steps: 1}); err != nil {
		return true, fmt.Errorf("export: %w", err)
	}
	done()
	text, err := j.Spec.Explicit(j.Definer, j.Loop)
	if err != nil {
		return true, proper(err)
	}
	s, err := spec.Parse("explicit.yaml", text, spec.Options{})
	if s == nil || err != nil {
		return true, fmt.Errorf("the spec without sugar has mistakes: %w\n%s", err, text)
	}
	return true, nil
}

// config is that of the check: what is asked of a spec in a project.
const config = `devices: [t4]
headroom: 5%
max_fragmentation: 10%
rules: {MP012: error}
`

// check examines the mutant as memplan check does, and prints what it finds.
func (m *mutant) check() error {
	conf, err := gate.ParseConfig("", "/", []byte(config), nil)
	if err != nil {
		return err
	}
	r, err := gate.Check(context.Background(), &gate.Options{
		Specs: []string{"mutant.yaml"}, Config: conf,
		Recipe: func(string) (*estimate.Recipe, error) { return m.recipe(), nil },
		Budget: m.budget,
	})
	if err != nil {
		return err
	}
	for _, f := range gate.Formats.All() {
		if _, err := f.Print(r, gate.Style{}); err != nil {
			return fmt.Errorf("check in format %s: %w", f.Name, err)
		}
	}
	for _, f := range r.All() {
		if strings.Contains(f.Message, "internal error") {
			return errors.New(f.Message)
		}
	}
	return nil
}

// proper reports errors of a spec that are none which a user can understand.
func proper(err error) error {
	wrong, played, unread := (*spec.Errors)(nil), (*program.Error)(nil), (*graph.FileError)(nil)
	switch {
	case errors.As(err, &wrong):
		for _, d := range wrong.List {
			if d.Line == 0 || d.Col < 1 || d.Msg == "" {
				return fmt.Errorf("a mistake without a place or a message: %+v", d)
			}
		}
		if wrong.Error() == "" {
			return errors.New("an error without text")
		}
	case errors.As(err, &played), errors.As(err, &unread), errors.As(err, new(*limit.Error)):
	default:
		return fmt.Errorf("an error of type %T: %w", err, err)
	}
	return nil
}
