package graph

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
)

// chooser makes choices from the bytes of a fuzz input.
type chooser struct {
	b []byte
}

func (c *chooser) n(n int) int {
	if len(c.b) == 0 || n == 0 {
		return 0
	}
	x := int(c.b[0])
	c.b = c.b[1:]
	return x % n
}

func (c *chooser) of(list ...string) string { return list[c.n(len(list))] }

// value writes a value for a parameter: mostly one that could be right, else
// something extreme.
func (c *chooser) value(p *op.Param) string {
	integer := func() string {
		return c.of("1", "2", "0", "-1", "3", "4", "8", "-2", "16", "2147483647", "1125899906842624", "-1125899906842624", "9223372036854775807")
	}
	switch p.Kind {
	case op.KTensor, op.KOperand:
		return c.of("x", "y", "w", "i", "2", "0.5", "null", "{relu: , inputs: x}")
	case op.KTensors:
		return c.of("[x, y]", "[x, x]", "[x]", "[]", "[i, w]", "x")
	case op.KInt:
		return integer()
	case op.KInts, op.KSizes, op.KPair:
		n := c.n(5)
		if n == 0 {
			return integer()
		}
		var parts []string
		for range n {
			parts = append(parts, integer())
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case op.KFloat:
		return c.of("0.5", "0", "-1", "1", "1e300", "2")
	case op.KFloats:
		return c.of("[0.9, 0.99]", "[]", "[1]", "[1, 2, 3]")
	case op.KBool:
		return c.of("true", "false")
	case op.KFormat:
		return c.of("channels_last", "channels_last_3d", "contiguous_format", "preserve_format")
	case op.KDType:
		return c.of("float32", "float16", "int64", "bool", "float64")
	}
	if len(p.Choices) > 0 {
		return c.of(p.Choices...)
	}
	return c.of("':'", "'0'", "'None, 1:2'", "':, -1'", "'::3, ...'", "''", "'1:0:0'")
}

// entry writes a call of an operator or layer with arguments of its signature.
func (c *chooser) entry() string {
	names := append(aten.Names(), layers.Names()...)
	head := names[c.n(256)%len(names)]
	if k := c.n(2); k == 1 { // reach the names beyond 255 too
		head = names[(len(names)-1-c.n(256)%len(names))%len(names)]
	}
	var params []op.Param
	inputs := 0 // of a layer, which are no arguments of its constructor
	if l := layers.Lookup(head); l != nil {
		inputs = len(l.InputNames())
		for _, i := range l.InputNames() {
			params = append(params, op.Param{Name: strings.TrimSuffix(i, "?"), Kind: op.KTensor})
		}
		params = append(append(params, l.Sigs()[0].Params...), l.Sigs()[1].Params...)
	} else {
		params = aten.Lookup(head).Sig.Params
	}
	var args, given, values []string
	for i := range params {
		p := &params[i]
		if !p.Required && p.Kind != op.KTensor && c.n(3) != 1 {
			continue
		}
		v := c.value(p)
		args = append(args, p.Name+": "+v)
		if i < inputs {
			given = append(given, p.Name+": "+v)
		} else {
			values = append(values, v)
		}
	}
	e := head + ": {" + strings.Join(args, ", ") + "}"
	switch c.n(6) {
	case 1: // by position
		e = head + ": [" + strings.Join(values, ", ") + "]"
	case 2:
		e = head + ": [" + strings.Join(values, ", ") + "], inputs: {" + strings.Join(given, ", ") + "}"
	case 3:
		if len(values) > 0 {
			e = head + ": " + values[0] + ", inputs: [x, {" + strings.Join(given, ", ") + "}]"
		}
	}
	if c.n(4) == 1 {
		e += ", inplace: true"
	}
	switch c.n(5) {
	case 1:
		e += ", name: x"
	case 2:
		e += ", name: y"
	case 3:
		e += ", name: [x, y]"
	}
	return "    - {" + e + "}\n"
}

// program writes a spec of a few calls.
func (c *chooser) program() string {
	shape := func() string {
		return c.of("[4]", "[]", "[3, 8, 8]", "[6, 8]", "[0]", "[1]", "[2, 3, 4, 4]", "[1, 1, 1, 1, 1, 1, 1]", "[4, 0, 2]")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nmodel:\n  inputs: {x: {shape: %s}, y: {shape: %s}, i: {shape: %s, dtype: int64}}\n", shape(), shape(), shape())
	fmt.Fprintf(&b, "  parameters: {w: {shape: %s}}\n  layers:\n    - {mul: [x, 1], name: x}\n", shape())
	for range 1 + c.n(4) {
		b.WriteString(c.entry())
	}
	b.WriteString("    - return: x\n  loss:\n    - {mean: {input: {float: , inputs: out}}}\n")
	fmt.Fprintf(&b, "train: {batch_size: %s, precision: %s}\n", c.of("1", "2", "4", "2147483647"), c.of("fp32", "bf16", "fp16"))
	return b.String()
}

// FuzzOperators calls operators and layers with arguments that their
// signatures allow, sensible and extreme ones: what package graph accepts must
// play, or be refused as a *program.Error.
func FuzzOperators(f *testing.F) {
	names := len(aten.Names()) + len(layers.Names())
	for i := range names {
		f.Add([]byte{0, 0, 0, 0, 0, byte(i)})
		f.Add([]byte{2, 2, 2, 2, 2, byte(i), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
		f.Add([]byte{3, 3, 3, 3, 1, byte(i), 0, 9, 8, 7, 6, 5, 4, 3, 2, 1})
	}
	f.Fuzz(playRandom)
}

// TestRandomOperators does the same for a fixed set of random programs.
func TestRandomOperators(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 80)
	for range 1000 {
		for i := range data {
			data[i] = byte(r.IntN([]int{4, 256, 256}[r.IntN(3)])) // small choices are the sensible ones
		}
		playRandom(t, data)
	}
}

// playRandom builds and plays the program that data stands for.
func playRandom(t *testing.T, data []byte) {
	text := (&chooser{data}).program()
	defer func() {
		if r := recover(); r != nil {
			t.Fatalf("panic: %v\n%s\n%s", r, text, debug.Stack())
		}
	}()
	s, err := spec.Parse("a.yaml", []byte(text), spec.Options{})
	if s == nil {
		t.Fatalf("%v\n%s", err, text)
	}
	env := op.Env{Arch: 80, SMs: 108, Torch: torchver.Recorded}
	r, err := Build(s, Options{Env: env})
	if err != nil {
		return // a mistake that was found
	}
	_, err = engine.Play(r.Job, env, nil, 2)
	var pe *program.Error
	if err != nil && !errors.As(err, &pe) {
		t.Errorf("error of type %T: %v\n%s", err, err, text)
	}
}
