package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"

	"github.com/mattn/go-isatty"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/trace"
)

// The exit codes.
const (
	exitOK       = 0
	exitGate     = 1 // a gate failed: it ran, and the answer is no
	exitUsage    = 2 // wrong flags, configuration or spec
	exitFailed   = 3 // could not finish: files, devices, mistakes of memplan's own
	exitMismatch = 4 // a run contradicts its prediction

	exitInterrupted = 130 // as of a shell, for SIGINT
)

// Streams are the ways in and out of the process.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(name string) (string, bool)
	OutTTY   bool // Out is a terminal
}

// System returns the streams of the process.
func System() *Streams {
	return &Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, OutTTY: isatty.IsTerminal(os.Stdout.Fd())}
}

// Main runs memplan with the arguments of a command line and returns the exit
// code. It prints every error, and recovers from panics.
func Main(args []string, s *Streams) (code int) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(s.Err, "memplan: internal error: %v\n%s\nThis is a bug in memplan; please report it with the spec and the flags.\n", r, debug.Stack())
			code = exitFailed
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root := newRoot(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	prefix := "memplan: "
	wrong, file, played := (*spec.Errors)(nil), (*graph.FileError)(nil), (*engine.ProgramError)(nil)
	if errors.As(err, &wrong) || errors.As(err, &file) || errors.As(err, &played) {
		prefix = "" // each begins with its place, as tools expect
	}
	fmt.Fprintf(s.Err, "%s%s\n", prefix, err)
	return exitCode(err)
}

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// exitCode maps an error to the exit code, here and nowhere else.
func exitCode(err error) int {
	var (
		usage  *usageError
		wrong  *spec.Errors
		played *engine.ProgramError
		conf   *allocsim.ConfigError
		read   *trace.ReadError
	)
	switch {
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &usage), errors.As(err, &wrong), errors.As(err, &played), errors.As(err, &conf), errors.As(err, &read):
		return exitUsage
	}
	return exitFailed
}
