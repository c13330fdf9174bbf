package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/mattn/go-isatty"

	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/hub"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// Streams are the ways in and out of the process.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(name string) (string, bool)
	OutTTY   bool // Out is a terminal
	ErrTTY   bool // Err is one

	InTTY bool // In is one

	Columns int // of the terminal that Out is; 0: not known

	inRead bool   // In was read to its end
	root   string // --root

	hub *hub.Hub // configurations of models by name

	guard  *limit.Guard  // of the jobs of the command; nil before flags are read
	budget *limit.Budget // of the only job of most commands; nil before it is asked for
}

// System returns the streams of the process.
func System() *Streams {
	return &Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, OutTTY: isatty.IsTerminal(os.Stdout.Fd()), ErrTTY: isatty.IsTerminal(os.Stderr.Fd()), InTTY: isatty.IsTerminal(os.Stdin.Fd()), Columns: columns(os.Stdout)}
}

// Main runs memplan with the arguments of a command line and returns the exit
// code. It prints every error, and recovers from panics. Where a command does not
// end by itself when it is interrupted, Main ends the process.
func Main(args []string, s *Streams) (code int) {
	own := *s // what is written is checked
	out := &checked{w: s.Out}
	own.Out, s = out, &own
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(s.Err, "memplan: internal error: %s\n%s\nThis is a bug in memplan; please report it with the spec and the flags.\n", printable.Lines(fmt.Sprint(r)), debug.Stack())
			code = exitFailed
		}
	}()
	defer func() { s.budget.Close() }()
	if _, given := s.Env("GOGC"); !given {
		defer limit.TuneGC()()
	}
	ctx, signals := interruptible(s.Err)
	defer signals.stop()
	root := newRoot(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if code := signals.code(); code != exitOK {
		fmt.Fprintln(s.Err, interrupted)
		return code
	}
	if err == nil && out.err != nil {
		err = fmt.Errorf("standard output cannot be written: %w", out.err)
	}
	if err == nil {
		return exitOK
	}
	if errors.As(err, new(answerNo)) && out.err == nil {
		return exitGate
	}
	if met := (*limit.Error)(nil); errors.Is(err, context.Canceled) && errors.As(s.budget.Err(), &met) {
		err = met // the command was told that its context has ended
	}
	code = exitCode(err)
	prefix := "memplan: "
	wrong, file, played := (*spec.Errors)(nil), (*graph.FileError)(nil), (*program.Error)(nil)
	if errors.As(err, &wrong) || errors.As(err, &file) || errors.As(err, &played) {
		prefix = "" // each begins with its place, as tools expect
	}
	fmt.Fprintf(s.Err, "%s\n", printable.Lines(prefix+err.Error()))
	if wrong != nil && s.ErrTTY {
		fmt.Fprintln(s.Err, explainHint)
	}
	return code
}

// explainHint is below the mistakes of a spec, for people.
const explainHint = "memplan explain NAME tells of a key, a statement, a layer or an operator (memplan explain inputs)"

// checked notes the first error of a writer: help, tables and scripts are written
// by what does not look at it.
type checked struct {
	w   io.Writer
	err error
}

func (c *checked) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if c.err == nil {
		c.err = err
	}
	return n, err
}
