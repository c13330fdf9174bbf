package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/mattn/go-isatty"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/printable"
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

	inRead bool   // In was read to its end
	root   string // --root
}

// System returns the streams of the process.
func System() *Streams {
	return &Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, OutTTY: isatty.IsTerminal(os.Stdout.Fd()), ErrTTY: isatty.IsTerminal(os.Stderr.Fd()), InTTY: isatty.IsTerminal(os.Stdin.Fd())}
}

// gcPercent lets the heap grow to five times what is alive: jobs of a few MiB that
// die young are played one after the other, and a quarter of the time would go to
// collecting them.
const gcPercent = 400

// Main runs memplan with the arguments of a command line and returns the exit
// code. It prints every error, and recovers from panics.
func Main(args []string, s *Streams) (code int) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(s.Err, "memplan: internal error: %s\n%s\nThis is a bug in memplan; please report it with the spec and the flags.\n", printable.Lines(fmt.Sprint(r)), debug.Stack())
			code = exitFailed
		}
	}()
	if _, given := s.Env("GOGC"); !given {
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal ends what does not end by itself
	root := newRoot(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if errors.As(err, new(answerNo)) {
		return exitGate
	}
	if code = exitCode(err); code == exitInterrupted {
		fmt.Fprintln(s.Err, "memplan: interrupted")
		return code
	}
	prefix := "memplan: "
	wrong, file, played := (*spec.Errors)(nil), (*graph.FileError)(nil), (*engine.ProgramError)(nil)
	if errors.As(err, &wrong) || errors.As(err, &file) || errors.As(err, &played) {
		prefix = "" // each begins with its place, as tools expect
	}
	fmt.Fprintf(s.Err, "%s\n", printable.Lines(prefix+err.Error()))
	return code
}
