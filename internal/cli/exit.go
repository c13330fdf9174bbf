package cli

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/trace"
)

// The exit codes.
const (
	exitOK       = 0
	exitGate     = 1
	exitUsage    = 2
	exitFailed   = 3
	exitMismatch = 4

	exitSignal      = 128 // and the number of the signal, as of a shell
	exitInterrupted = exitSignal + int(syscall.SIGINT)
	exitTerminated  = exitSignal + int(syscall.SIGTERM)
)

// exitDocs says what each exit code means; docs/exit-codes.md is made of it.
var exitDocs = []struct {
	code int
	when string
}{
	{exitOK, "The command did what it was asked for. `estimate` exits with it whatever the verdict."},
	{exitGate, "The command ran, and the answer is no: a gate failed (`check`), or two jobs differ (`diff --exit-code`)."},
	{exitUsage, "Wrong flags or arguments, or a spec, trace, report or configuration with mistakes. Nothing was computed."},
	{exitFailed, "The command could not finish: a file that is not there or cannot be written, a log without a message, a limit of memory or time that was met, a mistake of memplan's own."},
	{exitMismatch, "A run contradicts its prediction (`run`): its peaks differ by more than the tolerance, or, without `--tolerance`, any allocation or free does."},
	{exitInterrupted, "Interrupted with Ctrl-C (SIGINT)."},
	{exitTerminated, "Asked to end (SIGTERM)."},
}

// answerNo is no mistake: the command has said all there is to say, and the
// answer is no.
type answerNo struct{}

func (answerNo) Error() string { return "the answer is no" }

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
		played *program.Error
		conf   *allocsim.ConfigError
		read   *trace.ReadError
		not    *runtime.UnsupportedError
		kinds  *kernel.UnsupportedError
		away   *files.OutsideError
	)
	switch {
	case errors.Is(err, errMismatch), errors.Is(err, errOther):
		return exitMismatch
	case errors.As(err, &usage), errors.As(err, &wrong), errors.As(err, &played), errors.As(err, &conf), errors.As(err, &read), errors.As(err, &not), errors.As(err, &kinds), errors.As(err, &away):
		return exitUsage
	}
	return exitFailed
}
