package spec

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/note"
)

const minimal = "memplan: 1\nmodel: {preset: mlp}\n"

func mistakes(err error) []string {
	var out []string
	if e, ok := err.(*Errors); ok {
		for _, d := range e.List {
			out = append(out, fmt.Sprintf("%d:%d:%d %s", d.Line, d.Col, d.Len, d.Msg))
		}
	}
	return out
}

func TestParseSections(t *testing.T) {
	s, err := Parse("a.yaml", []byte(`memplan: 1
name: 2.50
torch: 2.10
params: {n: 4, half: "${n / 8}", words: [a, "${n}"]}
model: {preset: mlp}
train:
  batch_size: "${n * 2}"
  clip_grad_norm: 1
  zero_grad: after_step
  empty_cache: {at: step_start}
device: {memory: 24GiB, context: "${n}00MiB", memory_fraction: "${half}"}
data: {loader: {pin_memory: true}, source: mnist}
parallel: {ddp: 2, tensor: 2}
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"name keeps its spelling", s.Name.V, "2.50"},
		{"torch keeps its spelling", s.Torch.V, "2.10"},
		{"mode by default", s.Mode, String{V: "train"}},
		{"batch size", s.Train.BatchSize, Integer{8, Span{Pos{7, 15}, 10}, true}},
		{"steps not given", s.Train.Steps.Set, false},
		{"clip_grad_norm takes integers", s.Train.ClipGradNorm.V, 1.0},
		{"zero_grad as a word", s.Train.ZeroGrad.At.V, "after_step"},
		{"its other keys by default", s.Train.ZeroGrad.SetToNone.V, true},
		{"empty_cache.every by default", s.Train.EmptyCache.Every.V, int64(1)},
		{"memory", int64(s.Device.Memory.V), int64(24 << 30)},
		{"context", int64(s.Device.Context.V), int64(400 << 20)},
		{"memory fraction", s.Device.MemoryFraction.V, 0.5},
		{"section not given", s.Data.Dataset == nil, true},
		{"pin_memory", s.Data.Loader.PinMemory.V, true},
		{"params", s.ParamNames(), []string{"n", "half", "words"}},
		{"not modelled", note.Texts(s.NotModelled()), []string{"parallel.tensor: tensor parallelism" + worthOf("parallel.tensor", "")}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %#v, want %#v", c.name, c.got, c.want)
		}
	}
	if v, _ := s.Env.Lookup("words"); !reflect.DeepEqual(v, []any{"a", int64(4)}) {
		t.Errorf("words is %#v", v)
	}
}

func TestScalars(t *testing.T) {
	for text, want := range map[string]any{
		"1": int64(1), "-0": int64(0), "+7": int64(7), "1.5": 1.5, "1.": 1.0, ".5": 0.5, "1e-3": 1e-3, "1E3": 1000.0, "true": true, "False": false,
		"null": nil, "~": nil, "": nil, "yes": "yes", "on": "on", "NO": "NO", "1.2.3": "1.2.3", "12:30": "12:30", "2024-01-01": "2024-01-01",
		`"1"`: "1", "'true'": "true", "1e": "1e", "0x": "0x", ".": ".", "[1, a, null]": []any{int64(1), "a", nil}, "[]": []any{},
		"|\n  text": "text", "&a 1": int64(1), "inf": "inf", "'.inf'": ".inf", "9223372036854775807": int64(9223372036854775807),
	} {
		errs := &Errors{}
		v := readYAML([]byte("k: "+text), errs)
		if len(errs.List) > 0 {
			t.Errorf("%q: %v", text, errs.List)
			continue
		}
		if got, err := v.Get("k").plain(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %#v, %v; want %#v", text, got, err, want)
		}
	}
}

func TestMistakesHavePlaces(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", []string{"1:1:0 file is empty"}},
		{"\xff", []string{"1:1:0 file is not valid UTF-8"}},
		{"a", []string{"1:1:1 a spec is a mapping with the keys memplan, model, train, ...; not \"a\""}},
		{minimal + "é: 1\nnäme: 2", []string{"3:1:1 unknown key \"é\"", "4:1:4 unknown key \"näme\""}},
		{minimal + "name: {é: \"${1 +}\"}", []string{"3:17:1 expression: unexpected end, want a value", "3:7:1 name must be a string, not a mapping"}},
		{minimal + "train:\r\n  steps: 0\r\n", []string{"4:10:1 steps must be at least 1, not 0"}},
		{minimal + "train: {steps: '0'}", []string{"3:16:3 steps must be an integer, not \"0\""}},
		{minimal + "train: {steps: 1, steps: 2, loop: x}", []string{"3:19:5 key \"steps\" occurs twice in this mapping", "3:35:1 unknown value of loop \"x\""}},
		{minimal + "data: &d {input: static}\nteacher: {preset: mlp, with: *d}", nil},
	} {
		_, err := Parse("a.yaml", []byte(c.text), Options{})
		if got := mistakes(err); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q:\n%q\nwant\n%q", c.text, got, c.want)
		}
	}
}

func TestErrorText(t *testing.T) {
	_, err := Parse("a.yaml", []byte("memplan: 1\nmodel: {preset: mlp}\ntrain:\n\tsteps: 1\n"), Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "a.yaml:4:2: not valid YAML: ") {
		t.Errorf("%v", err)
	}
	long := strings.Repeat("x", 200)
	_, err = Parse("a.yaml", []byte("memplan: 1\nmodel: {preset: mlp}\ndata: {source: "+long+", inptu: static}\n"), Options{Set: []string{"modell.x=1"}})
	want := `--set modell.x=1: unknown key "modell"; did you mean "model"?
      = allowed: memplan, name, torch, params, mode, model, models, blocks, optimizers, train, before, step, data, device, trainer, eval, teacher, quantize, prune, freeze, lora, peft, offload, parallel, ddp, fsdp, deepspeed, tp, pp
a.yaml:3:218: unknown key "inptu"; did you mean "input"?
    3 | ...xxxxxxxxxxxxxxxxxx, inptu: static}
      |                        ^~~~~
      = allowed: input, dataset, loader, device_prefetch, transforms, source, validation, shuffle, tokenizer`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	wide := &Errors{File: "a", Lines: []string{"日本: x"}}
	wide.Addf(Span{Pos{1, 5}, 1}, "here")
	if got, want := wide.Error(), "a:1:5: here\n    1 | 日本: x\n      |       ^"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestOverrides(t *testing.T) {
	text := "memplan: 1\nparams: {n: 1}\nmodel: {preset: mlp}\ntrain: {batch_size: 2, loop: flat}\n"
	for _, c := range []struct {
		set  []string
		want string // batch size, loop, name, n; or the mistakes
	}{
		{nil, "2 flat  1"},
		{[]string{"train.batch_size=8"}, "8 flat  1"},
		{[]string{"train.batch_size=8", "train.batch_size=9"}, "9 flat  1"},
		{[]string{"train.batch_size=${n * 3}", "params.n=5"}, "15 flat  5"},
		{[]string{"train={batch_size: 3}"}, "3 function  1"},
		{[]string{"name=a=b"}, "2 flat a=b 1"},
		{[]string{"name="}, "2 flat  1"},
		{[]string{"device.gpu=t4"}, "2 flat  1"},
		{[]string{"train.empty_cache.every=2"}, "2 flat  1"},
		{[]string{"train.batch_size"}, "-1:1 must be key=value, such as train.batch_size=8"},
		{[]string{"=1"}, "-1:1 must be key=value, such as train.batch_size=8"},
		{[]string{"name=x", "train.batch_size=0"}, "-2:1 batch_size must be at least 1, not 0"},
		{[]string{"train.batch_size.x=0"}, "-1:1 train.batch_size is not a mapping"},
		{[]string{"train.batch_size=${n +}"}, "-1:1 expression: unexpected end, want a value"},
		{[]string{"train.batch_size=${m}"}, "-1:1 unknown name \"m\" in an expression; known are n"},
		{[]string{"params.m=1"}, "-1:1 unknown param \"m\""},
		{[]string{"train.batch_size=[1"}, "-1:1 not valid YAML: did not find expected ',' or ']'"},
		{[]string{"train..batch_size=1"}, "-1:1 unknown key \"\""},
	} {
		s, err := Parse("a.yaml", []byte(text), Options{Set: c.set})
		got := ""
		if e, ok := err.(*Errors); ok {
			for _, d := range e.List {
				got += fmt.Sprintf("%d:%d %s", d.Line, d.Col, d.Msg)
			}
		} else {
			n, _ := s.Env.Lookup("n")
			got = fmt.Sprintf("%d %s %s %v", s.Train.BatchSize.V, s.Train.Loop.V, s.Name.V, n)
		}
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.set, got, c.want)
		}
	}
}

// heads lists the statements of a step: "backward(loss)".
func heads(es []*Entry) string {
	var out []string
	for _, e := range es {
		s := e.Head.V
		switch {
		case e.Arg == nil:
		case e.Arg.Kind == Map:
			var args []string
			for _, p := range e.Arg.Pairs {
				args = append(args, p.Key.Str+"="+p.Value.Str)
			}
			s += "(" + strings.Join(args, ", ") + ")"
		default:
			s += "(" + e.Arg.Str + ")"
		}
		if len(e.Name) > 0 {
			s = e.Name[0].V + "=" + s
		}
		if e.Every != nil {
			s += "/" + e.Every.Str
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func TestDesugar(t *testing.T) {
	for _, c := range []struct {
		keys string
		loss string
		want string
	}{
		{"", "MSELoss", "batch zero_grad out=forward(model=model) loss=MSELoss backward(loss) optimizer_step"},
		{"train: {zero_grad: never}", "{mse_loss: y}", "batch out=forward(model=model) loss=mse_loss(y) backward(loss) optimizer_step"},
		{"train: {zero_grad: {at: after_step, set_to_none: false}}", "MSELoss", "batch out=forward(model=model) loss=MSELoss backward(loss) optimizer_step zero_grad(set_to_none=false)"},
		{"train: {zero_grad: before_backward, empty_cache: {at: before_backward, every: 3}}", "MSELoss",
			"batch out=forward(model=model) loss=MSELoss zero_grad empty_cache/3 backward(loss) optimizer_step"},
		{"train: {clip_grad_norm: 1, clip_grad_value: 0.5, empty_cache: }", "MSELoss",
			"batch zero_grad out=forward(model=model) loss=MSELoss backward(loss) clip_grad_norm(1.0) clip_grad_value(0.5) optimizer_step empty_cache"},
		{"", "[{mse_loss: y, name: a}, {mean: , name: b}]", "batch zero_grad out=forward(model=model) a=mse_loss(y) b=mean loss= backward(loss) optimizer_step"},
		{"", "[{mse_loss: y, name: a}, mean]", "batch zero_grad out=forward(model=model) a=mse_loss(y) loss=mean backward(loss) optimizer_step"},
		{"mode: inference\ntrain: {empty_cache: {at: step_start}}", "MSELoss", "empty_cache batch out=forward(model=model)"},
	} {
		s, err := Parse("a.yaml", []byte("memplan: 1\nmodel: {preset: mlp, loss: "+c.loss+"}\n"+c.keys), Options{})
		if err != nil {
			t.Errorf("%s: %v", c.keys, err)
			continue
		}
		if got := heads(s.Desugar(s.LossValue())); got != c.want {
			t.Errorf("%s, loss %s:\n%s\nwant\n%s", c.keys, c.loss, got, c.want)
		}
	}
}

func TestEntries(t *testing.T) {
	s, err := Parse("a.yaml", []byte(`memplan: 1
model:
  inputs: {x: [4]}
  layers:
    - ReLU
    - {ReLU:, name: a}
    - Linear: {out_features: 4}
      name: [q, _]
      inputs: [x, 3, {relu: , inputs: a}, [x, a]]
      repeat: {n: 2, as: i}
    - {Linear: 3, for: {v: [1, 2], w: "${l}"}, module: "up[${v}]", tie: {weight: a.weight}}
    - layers: [ReLU, {del: a}]
    - name: [b]
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range s.Model.Layers {
		line := fmt.Sprintf("%d:%d %s", e.At.Line, e.At.Col, e.Head.V)
		for _, n := range e.Name {
			line += " name=" + n.V
		}
		for _, o := range e.Inputs {
			switch {
			case o.Nested != nil:
				line += " nested=" + o.Nested.Head.V
			case o.List != nil:
				line += fmt.Sprintf(" list=%d", len(o.List))
			default:
				line += " in=" + o.Value.Str
			}
		}
		if e.Repeat != nil {
			line += " repeat=" + e.Repeat.Str + " as=" + e.As.V
		}
		for _, l := range e.For {
			line += " for=" + l.Vars[0].V
		}
		for _, l := range e.Tie {
			line += " tie=" + l.Param.V
		}
		if e.Tuple {
			line += " tuple"
		}
		line += fmt.Sprintf(" body=%d", len(e.Body))
		got = append(got, line)
	}
	want := []string{
		"5:7 ReLU body=0", "6:7 ReLU name=a body=0", "7:7 Linear name=q name=_ in=x in=3 nested=relu list=2 repeat=2 as=i tuple body=0",
		"11:7 Linear for=v for=w tie=weight body=0", "12:7 layers body=2", "13:7  name=b tuple body=0",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNamesAndPaths(t *testing.T) {
	for s, want := range map[string]bool{"x": true, "_": true, "x1": true, "": false, "1x": false, "x.y": false, "x-y": false, "é": false, "for": false, "self": false, "None": false} {
		if IsName(s) != want {
			t.Errorf("IsName(%q) is not %v", s, want)
		}
	}
	for s, want := range map[string]bool{
		"conv1": true, "up[0]": true, "up.0": true, "layers.12": true, "": false, "a.b": false, "a[0][1]": true, "a.0.1": true, `a["b"][0]`: true, "a['b']": true, `a["0b"]`: false, "a[0].b": false, `a["for"]`: false,
		"a" + strings.Repeat("[0]", 8): false, "a" + strings.Repeat("[0]", 7): true, "a[x]": false,
		"a[-1]": false, "[0]": false, "0": false, "a.": false, "a..0": false, "class": false, "a[99999999]": false,
	} {
		if IsModulePath(s) != want {
			t.Errorf("IsModulePath(%q) is not %v", s, want)
		}
	}
	for s, want := range map[string][]string{"a": {"a"}, "a[0].b": {"a", "0", "b"}, "a.0.b": {"a", "0", "b"}, "": nil, "a[b]": nil, "a]": nil, `a["b"].c`: {"a", "b", "c"}} {
		if got := PathParts(s); !reflect.DeepEqual(got, want) {
			t.Errorf("PathParts(%q) = %q, want %q", s, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	s, err := Parse("a.yaml", []byte("memplan: 1\nmodel: {layers: [{add: [a, \"b[-1]\", {relu: , inputs: c.pop}]}, {layers: [{Linear: \"${d.shape[0]}\", inputs: e}]}]}"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	Words(s.Model.Layers, func(w string) { seen[w] = true })
	for _, w := range []string{"a", "b", "c", "d", "e"} {
		if !seen[w] {
			t.Errorf("%q is not among the words %v", w, seen)
		}
	}
}
