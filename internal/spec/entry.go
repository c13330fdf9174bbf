package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/nearest"
)

// Entry is one statement of a list of layers or of a step: a layer or operator
// with its argument, or a statement of the language, and what modifies it.
type Entry struct {
	At   Span   // the entry
	Head String // layer, operator or statement; "" if the entry only names a value
	Arg  *Value // of the head; nil if there is none

	Name    []String // names for the results; "xs[]" appends
	Tuple   bool     // Name was a list: the result is unpacked
	Nest    []int    // of a tuple, by item: how many names it is unpacked into again, 0 for one of its own; nil if all are so
	Inputs  []*Operand
	HasIn   bool   // inputs: was given
	Module  *Value // attribute path of the module
	Tie     []Tie
	With    *Value // params of a block
	If      *Value
	Repeat  *Value // count
	As      String // index variable of repeat
	For     []Loop
	InPlace *Value
	Pick    *Value
	Every   *Value
	NoGrad  *Value // with torch.no_grad()
	// EnableGrad is with torch.enable_grad(), inside of what has no gradients.
	EnableGrad *Value
	// IfRequiresGrad and UnlessRequiresGrad name a tensor: the statement runs if it
	// requires grad, or if it does not.
	IfRequiresGrad, UnlessRequiresGrad *Value
	// Autocast false keeps a statement of a step out of torch.autocast.
	Autocast *Value
	// Unused makes the entry's module, with sizes from its inputs, and does not call
	// it.
	Unused *Value
	// DType is the type to which the entry's module is converted.
	DType *Value
	Body  []*Entry // of layers: and Sequential:, and of an optimizer_step's closure

	// Checkpoint calls the entry's module or function through
	// torch.utils.checkpoint.
	Checkpoint *Checkpoint

	// Assigns says that the entry was written as a statement of Python: its name is
	// bound to its input. Augment is the operator of names += value.
	Assigns bool
	Augment string

	// Bad says that mistakes were reported in it, those in Body aside: what it
	// gives is not known.
	Bad bool
	// Unnamed says that some of its names could not be read.
	Unnamed bool
}

// Loop is a variable of for:, or several that unpack each item.
type Loop struct {
	Vars []String
	In   *Value
}

// Tie makes a parameter of the entry's module another module's.
type Tie struct {
	Param  String
	Source *Value
}

// Operand is one input of an entry: the text of a reference, a number, null for
// None, or a nested entry.
type Operand struct {
	At     Span
	Value  *Value     // a reference (a string, perhaps with expressions), a number or null
	Nested *Entry     // an inline call
	List   []*Operand // a literal list of tensors

	Named []Named[Operand] // inputs that are given by their names
	bare  bool             // Nested is one key and its value
}

// Bare reports whether the operand is a mapping of one key, which no modifier goes with:
// an inline entry, or the name of an input and its value.
func (o *Operand) Bare() bool { return o.bare }

// The statements of the language, beside layers and operators.
const (
	HeadBlock     = "block"
	HeadCall      = "call"
	HeadLayers    = "layers"
	HeadDel       = "del"
	HeadReturn    = "return"
	HeadRegister  = "register_buffer"
	HeadBatch     = "batch"
	HeadForward   = "forward"
	HeadGrad      = "grad"
	HeadConvert   = "convert_outputs_to_fp32"
	HeadBackward  = "backward"
	HeadOptimizer = "optimizer_step"
	HeadZeroGrad  = "zero_grad"
	HeadClipNorm  = "clip_grad_norm"
	HeadClipValue = "clip_grad_value"
	HeadEmpty     = "empty_cache"
	HeadToDevice  = "optimizer_to_device"
	HeadKeep      = "keep"
	HeadEMA       = "ema_update"
	HeadSync      = "grad_sync"
	HeadEval      = "eval"
	HeadTrain     = "train"
	HeadSeq       = "Sequential"

	// Of modules: alone.
	HeadModuleList = "ModuleList"
	HeadModuleDict = "ModuleDict"
)

// Statements lists the heads that may stand in any list, StepStatements those
// of a step alone.
var (
	Statements     = []string{HeadBlock, HeadCall, HeadLayers, HeadDel, HeadReturn, HeadRegister, HeadSeq}
	StepStatements = []string{HeadBatch, HeadForward, HeadGrad, HeadConvert, HeadBackward, HeadOptimizer, HeadZeroGrad, HeadClipNorm, HeadClipValue, HeadEmpty, HeadToDevice, HeadKeep, HeadEMA, HeadSync, HeadEval, HeadTrain}
)

// Modifiers lists the keys of an entry that are not its head.
var Modifiers = []string{
	"name", "inputs", "module", "tie", "with", "if", "repeat", "for", "inplace", "pick", "every", "no_grad", "enable_grad", "if_requires_grad", "unless_requires_grad", "autocast", "checkpoint", "dtype", "unused",
}

func isModifier(key string) bool {
	for _, m := range Modifiers {
		if m == key {
			return true
		}
	}
	return false
}

// entries reads a list of entries; a single entry counts as a list of one.
func (d *decoder) entries(v *Value) []*Entry {
	if v == nil || v.Kind == Null {
		return nil
	}
	if v.Kind != List {
		return []*Entry{d.entry(v)}
	}
	if len(v.Items) == 0 {
		return nil
	}
	if d.kept {
		if out := known.entriesOf(v); len(out) == len(v.Items) {
			return out
		}
	}
	before := d.errs.Reported()
	out := make([]*Entry, 0, len(v.Items))
	for _, it := range v.Items {
		out = append(out, d.entry(it))
	}
	if d.kept && d.errs.Reported() == before {
		known.keepEntries(v, out)
	}
	return out
}

// entry reads one entry: a word, or a mapping with one head and modifiers. With
// mistakes in it, it is as much of it as could be read.
func (d *decoder) entry(v *Value) *Entry {
	e := &Entry{At: v.Span}
	before, inBody := d.errs.Reported(), 0
	d.errs.Contained(func() { inBody = d.readEntry(e, v) })
	e.Bad = v.bad() || d.errs.Reported()-before > inBody
	return e
}

// readEntry fills an entry, and counts the mistakes in its body.
func (d *decoder) readEntry(e *Entry, v *Value) (inBody int) {
	switch v.Kind {
	case Str:
		if v.bad() {
			return 0
		}
		if v.expr != nil {
			if isStatement(v.Str) {
				d.errs.Addf(v.Span, "a statement names params and variables as they are, without ${}: h = x * width")
			} else {
				d.errs.Addf(v.Span, "an entry is a layer or operator, not an expression; write {block: \"${...}\"} for a computed block")
			}
			return 0
		}
		if isStatement(v.Str) {
			d.statement(e, v)
			return 0
		}
		e.Head = String{v.Str, v.Span, true}
		return 0
	case Map:
	default:
		d.errs.Addf(v.Span, "an entry is the name of a layer or operator, or a mapping; not %s", v.Describe())
		return 0
	}
	for _, p := range v.Pairs {
		if isModifier(p.Key.Str) {
			d.modifier(e, p.Key, p.Value)
			continue
		}
		if e.Head.Set {
			second := Diag{Span: p.Key.Span, Msg: fmt.Sprintf("an entry has one operator; %q is a second beside %q", p.Key.Str, e.Head.V)}
			if n := nearest.To(p.Key.Str, Modifiers); n != "" {
				second.Msg += fmt.Sprintf("; did you mean %q?", n)
			}
			second.Hint = "other keys are " + strings.Join(Modifiers, ", ")
			d.errs.add(second)
			continue
		}
		e.Head = String{p.Key.Str, p.Key.Span, true}
		e.Arg = p.Value
		if e.Arg.Kind == Null && e.Arg.Str == "" {
			e.Arg = nil
		}
	}
	switch e.Head.V {
	case HeadModuleList, HeadModuleDict:
		before := d.errs.Reported()
		e.Body, e.Arg = d.contained(e), nil
		inBody = d.errs.Reported() - before
	case HeadLayers, HeadSeq:
		if e.Arg == nil {
			d.errs.Addf(e.Head.At, "%s: needs a list of entries", e.Head.V)
			return 0
		}
		before := d.errs.Reported()
		e.Body, e.Arg = d.entries(e.Arg), nil
		inBody = d.errs.Reported() - before
	case HeadOptimizer:
		if c := e.Arg.Get(keyClosure); c != nil {
			before := d.errs.Reported()
			e.Body, e.Arg = d.entries(c), e.Arg.without(keyClosure)
			inBody = d.errs.Reported() - before
		}
	case "":
		if len(e.Name) == 0 {
			d.errs.Addf(v.Span, "entry without a layer, operator or name")
		}
	}
	return inBody
}

// contained reads the modules of a ModuleList or ModuleDict. A list among those of a
// list is a ModuleList in it.
func (d *decoder) contained(e *Entry) []*Entry {
	var out []*Entry
	switch v := e.Arg; {
	case e.Head.V == HeadModuleList && v != nil && v.Kind == List:
		for _, it := range v.Items {
			if it.Kind == List {
				inner := &Entry{At: it.Span, Head: String{HeadModuleList, it.Span, true}, Arg: it}
				inner.Body, inner.Arg = d.contained(inner), nil
				out = append(out, inner)
				continue
			}
			out = append(out, d.entry(it))
		}
	case e.Head.V == HeadModuleDict && v != nil && v.Kind == Map:
		for _, p := range v.Pairs {
			if !IsName(p.Key.Str) {
				d.errs.Addf(p.Key.Span, "a key of ModuleDict must be a Python identifier, not %q", p.Key.Str)
				continue
			}
			it := d.entry(p.Value)
			if it.Module != nil {
				d.errs.Addf(it.Module.Span, "the module is named %q by its key already", p.Key.Str)
			}
			it.Module = p.Key
			out = append(out, it)
		}
	case e.Head.V == HeadModuleList:
		d.errs.Addf(e.Head.At, "ModuleList needs a list of modules, such as [{block: attn}, {block: ff}]")
	default:
		d.errs.Addf(e.Head.At, "ModuleDict needs a mapping from keys to modules, such as {cls: {Linear: 10}}")
	}
	return out
}

func (d *decoder) modifier(e *Entry, k, v *Value) {
	switch k.Str {
	case "name":
		e.Tuple = v.Kind == List
		e.Unnamed = d.errs.Contained(func() { d.names(e, v) })
	case "inputs":
		e.HasIn = true
		for _, it := range listOf(v) {
			if o := d.input(it); o != nil {
				e.Inputs = append(e.Inputs, o)
			}
		}
	case "module":
		e.Module = v
		if v.Kind != Str || (v.expr == nil && !IsModulePath(v.Str)) {
			d.errs.Addf(v.Span, "module must be %s, not %s", modulePathForm, v.Describe())
			e.Module = nil
		}
	case "tie":
		if v.Kind != Map {
			d.errs.Addf(v.Span, "tie is a mapping from a parameter of this module to another one's, such as {weight: wte.weight}")
			return
		}
		for _, p := range v.Pairs {
			if p.Value.Kind != Str {
				d.errs.Addf(p.Value.Span, "tie needs the path of a parameter, not %s", p.Value.Describe())
				continue
			}
			e.Tie = append(e.Tie, Tie{String{p.Key.Str, p.Key.Span, true}, p.Value})
		}
	case "with":
		e.With = v
		if v.Kind != Map {
			d.errs.Addf(v.Span, "with is a mapping from params to values, not %s", v.Describe())
			e.With = nil
		}
	case "if":
		e.If = v
	case "repeat":
		e.Repeat = v
		if v.Kind == Map {
			e.Repeat = nil
			for _, p := range v.Pairs {
				switch p.Key.Str {
				case "n":
					e.Repeat = p.Value
				case "as":
					e.As = d.identifier(p.Value)
				default:
					d.errs.Unknown(p.Key.Span, "key of repeat", p.Key.Str, []string{"n", "as"})
				}
			}
			if e.Repeat == nil {
				d.errs.Addf(k.Span, "repeat needs n, the number of times")
			}
		}
	case "for":
		if v.Kind != Map || len(v.Pairs) == 0 {
			d.errs.Addf(v.Span, "for is a mapping from a variable to a list, such as {v: \"${cfg}\"}")
			return
		}
		for _, p := range v.Pairs {
			l := Loop{In: p.Value}
			for _, name := range strings.Split(p.Key.Str, ",") {
				if name = strings.TrimSpace(name); !IsVariable(name) {
					d.errs.Addf(p.Key.Span, "variable must be an identifier, not %q", name)
					continue
				}
				l.Vars = append(l.Vars, String{name, p.Key.Span, true})
			}
			e.For = append(e.For, l)
		}
	case "inplace":
		e.InPlace = v
	case "pick":
		e.Pick = v
	case "every":
		e.Every = v
	case "no_grad":
		e.NoGrad = v
	case "enable_grad":
		e.EnableGrad = v
	case "if_requires_grad":
		e.IfRequiresGrad = v
	case "unless_requires_grad":
		e.UnlessRequiresGrad = v
	case "autocast":
		e.Autocast = v
	case "dtype":
		e.DType = v
	case "unused":
		e.Unused = v
	case "checkpoint":
		e.Checkpoint = &Checkpoint{At: k.Span}
		e.Checkpoint.unmarshal(d, v)
	}
}

// names reads the names of an entry; a list among them names the items of an
// inner tuple.
func (d *decoder) names(e *Entry, v *Value) {
	nested, all := false, 0
	var nest []int
	none := func(v *Value) {
		if v.Kind == List && len(v.Items) == 0 {
			d.errs.Addf(v.Span, "name must be a Python identifier or a list of identifiers, not an empty list")
		}
	}
	none(v)
	for _, it := range listOf(v) {
		none(it)
		inner, n := listOf(it), 0
		if e.Tuple && it.Kind == List {
			nested, n = true, len(inner)
		}
		nest, all = append(nest, n), all+len(inner)
		for _, x := range inner {
			d.name(e, x)
		}
	}
	if nested && len(e.Name) == all {
		e.Nest = nest
	}
}

// name reads one of the names of an entry.
func (d *decoder) name(e *Entry, v *Value) {
	if v.bad() {
		return
	}
	if v.Kind != Str || v.expr != nil || !IsName(strings.TrimSuffix(v.Str, "[]")) {
		d.errs.Addf(v.Span, "name must be a Python identifier, not %s", v.Describe())
		return
	}
	e.Name = append(e.Name, String{v.Str, v.Span, true})
}

// input reads an item of inputs:. A mapping of several keys, none of which belongs to an
// entry, gives inputs by their names.
func (d *decoder) input(v *Value) *Operand {
	if v.Kind != Map || slices.ContainsFunc(v.Pairs, func(p Pair) bool { return isModifier(p.Key.Str) }) {
		return d.operand(v)
	}
	if len(v.Pairs) < 2 {
		o := d.operand(v)
		o.bare = true
		return o
	}
	o := &Operand{At: v.Span}
	for _, p := range v.Pairs {
		if x := d.operand(p.Value); x != nil {
			o.Named = append(o.Named, Named[Operand]{String{p.Key.Str, p.Key.Span, true}, x})
		}
	}
	return o
}

// Inputs reads a value as inputs:, a list or one of them.
func (s *Spec) Inputs(v *Value) []*Operand {
	d := &decoder{errs: s.Errs, env: s.Env}
	var out []*Operand
	for _, it := range listOf(v) {
		o := d.input(it)
		if o == nil {
			panic(Stop{})
		}
		out = append(out, o)
	}
	return out
}

// operand reads one input.
func (d *decoder) operand(v *Value) *Operand {
	switch v.Kind {
	case Map:
		n := d.entry(v)
		if len(n.Name) > 0 {
			d.errs.Addf(n.Name[0].At, "an inline entry is a nested call and binds no name")
		}
		return &Operand{At: v.Span, Nested: n}
	case List:
		o := &Operand{At: v.Span, List: []*Operand{}}
		for _, it := range v.Items {
			if x := d.operand(it); x != nil {
				o.List = append(o.List, x)
			}
		}
		return o
	case Str, Int, Float, Bool:
		return &Operand{At: v.Span, Value: v}
	case Null:
		if v.Str != "" { // null is None; an empty value is a slip
			return &Operand{At: v.Span, Value: v}
		}
	}
	d.errs.Addf(v.Span, "an input is the name of a value, a number or an inline entry, not %s", v.Describe())
	return nil
}

// Operand reads a value of an entry's argument as an input: for operators
// whose argument lists their operands.
func (s *Spec) Operand(v *Value) *Operand {
	d := &decoder{errs: s.Errs, env: s.Env}
	return d.operand(v)
}

func (d *decoder) identifier(v *Value) String {
	if v.Kind != Str || !IsVariable(v.Str) {
		d.errs.Addf(v.Span, "variable must be an identifier, not %s", v.Describe())
		return String{}
	}
	return String{v.Str, v.Span, true}
}

// listOf returns the items of a list, or the value itself as the only one.
func listOf(v *Value) []*Value {
	if v.Kind == List {
		return v.Items
	}
	return []*Value{v}
}

// IsName reports whether s may be the name of a value or module in a script: an
// identifier of Python that is no keyword, nor what scripts have already.
func IsName(s string) bool { return IsVariable(s) && !scriptNames[s] }

// IsVariable reports whether s may be the name of a param or a loop's variable,
// which stand in expressions alone.
func IsVariable(s string) bool {
	if s == "" {
		return false
	}
	for i, c := range s {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return !pythonKeywords[s]
}

var pythonKeywords = map[string]bool{
	"False": true, "None": true, "True": true, "and": true, "as": true, "assert": true, "async": true, "await": true,
	"break": true, "class": true, "continue": true, "def": true, "del": true, "elif": true, "else": true, "except": true,
	"finally": true, "for": true, "from": true, "global": true, "if": true, "import": true, "in": true, "is": true,
	"lambda": true, "nonlocal": true, "not": true, "or": true, "pass": true, "raise": true, "return": true, "try": true,
	"while": true, "with": true, "yield": true,
}

// scriptNames are the names that every script and method has.
var scriptNames = map[string]bool{"self": true, "torch": true, "nn": true, "F": true}

// modulePathForm says what IsModulePath accepts.
const modulePathForm = "an attribute such as conv1, or an item of a list such as up[0] or layers[0][1]"

// IsModulePath reports whether s may be the place of a module in its block: an
// attribute, or an item of a ModuleList, a[0] or a.0, which may be in others, or of a
// ModuleDict: a["key"].
func IsModulePath(s string) bool {
	if !modulePath.MatchString(s) {
		return false
	}
	parts := PathParts(s)
	for _, p := range parts {
		if !IsName(p) && (len(p) > 6 || p[0] > '9') {
			return false
		}
	}
	return len(parts) <= MaxContainers
}

// MaxContainers is how deep modules may lie in lists of lists.
const MaxContainers = 8

var (
	modulePath = regexp.MustCompile(`^[A-Za-z_]\w*(\.\d+|\[\d+\]|\["[A-Za-z_]\w*"\]|\['[A-Za-z_]\w*'\])*$`)
	indexRE    = regexp.MustCompile(`\[(?:(\d+)|"(\w+)"|'(\w+)')\]`)
)

// PathParts splits a path at dots and indices: "up[0].conv" is up, 0, conv. It
// returns nil if brackets do not pair.
func PathParts(s string) []string {
	if strings.Contains(s, "[") {
		s = indexRE.ReplaceAllString(s, ".$1$2$3")
	}
	if s == "" || strings.ContainsAny(s, "[]") {
		return nil
	}
	return strings.Split(s, ".")
}
