package exporttorch

import (
	"bytes"
	"encoding/json"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/specs"
)

// roles is a spec with a name in every place where the language lets a user
// choose one: they begin with zq.
const roles = `memplan: 1
name: roles
models:
  zqmodel:
    inputs: {zqinput: {shape: [8]}, y: {shape: [], dtype: int64}}
    blocks:
      zqfunction: {kind: function, inputs: [zqparameter], layers: [{add: 1, inputs: zqparameter, name: zqlocal}, {return: {mul: [zqlocal, zqparameter]}}]}
      zqback: {kind: function, inputs: [zqgrad, t], layers: [{return: {mul: [zqgrad, t]}}]}
      zqautograd: {kind: autograd, inputs: [v], keep: [zqkept], layers: [{sigmoid: , inputs: v, name: zqkept}, {mul: [v, 2], name: o}, {return: o}], backward: zqback}
      zqblock:
        inputs: [zqargument, w]
        parameters: {zqweight: {shape: [8]}}
        buffers: {zqbuffer: {shape: [8]}}
        layers:
          - {Linear: 8, inputs: zqargument, module: zqmember, name: h}
          - {Linear: 8, inputs: h, module: "zqlist[0]", name: h}
          - {dropout: , inputs: h, name: h}
          - {add: [h, zqweight], name: h}
          - {add: [h, zqbuffer], name: zqvalue}
          - {add: [zqvalue, {arange: 8}], name: zqvalue}
          - {block: zqfunction, inputs: zqvalue, name: h}
          - {block: zqautograd, inputs: h, name: h}
          - {repeat: 3, Linear: 8, inputs: h, name: h}
          - {add: [h, w], name: h}
          - {return: h}
    layers:
      - {ReLU: , inputs: zqinput, name: r}
      - {block: zqblock, inputs: [zqinput, r], module: zqchild}
      - Linear: 4
optimizers:
  zqoptimizer: {optimizer: SGD, models: [zqmodel]}
train: {batch_size: 4}
step:
  - batch
  - {zero_grad: zqoptimizer}
  - {forward: {model: zqmodel, inputs: zqinput}, name: zqout}
  - {CrossEntropyLoss: , inputs: [zqout, y], module: zqcriterion, name: zqloss}
  - {keep: {of: zqloss, in: zqlist_of_losses}}
  - {keep: {of: zqloss, sum: true, in: zqsum, item: true}}
  - {backward: zqloss}
  - {optimizer_step: zqoptimizer}
`

// settings are what makes scripts use names of their own.
var settings = map[string]string{
	"":          "",
	"flat":      "train: {batch_size: 4, loop: flat, precision: amp-fp16}\n",
	"offloaded": "train: {batch_size: 4, ema: {model: zqmodel}}\noffload: {optimizer: true, gradients: true}\nfreeze: {modules: [zqchild.zqmember]}\neval: {batches: 2, batch_size: 2, step: [batch, {forward: {model: zqmodel, inputs: zqinput}, name: zqout}]}\n",
	"adapted":   "lora: {r: 2, targets: [\"*zqmember\", \"zqchild.zqlist.0\"], modules_to_save: [\"layers.1\"]}\nprune: {amount: 0.5, modules: [\"*.layers.*\"], except: [\"*.layers.1\"]}\n",
}

var role = regexp.MustCompile(`zq\w+`)

// printed is the script of a spec with names in the place of roles, nil where
// the spec is refused.
func printed(t *testing.T, setting string, names map[string]string) ([]byte, error) {
	t.Helper()
	text := roles
	if strings.HasPrefix(setting, "train") {
		text = strings.Replace(text, "train: {batch_size: 4}\n", "", 1)
	}
	text = role.ReplaceAllStringFunc(text+setting, func(r string) string {
		if n := names[r]; n != "" {
			return n
		}
		return r
	})
	s, err := spec.Parse("s.yaml", []byte(text), spec.Options{})
	if err != nil {
		return nil, err
	}
	env := op.Env{Arch: 80, SMs: 108, ThreadsPerSM: 2048, Torch: torchver.Recorded}
	g, err := graph.Build(s, graph.Options{Env: env, Preset: specs.Preset, Presets: specs.Names()})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := Write(&b, g.Job, Options{}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), nil
}

// scriptWords are all identifiers of the scripts with harmless names.
func scriptWords(t *testing.T) map[string]bool {
	out := map[string]bool{}
	for name, setting := range settings {
		text, err := printed(t, setting, nil)
		if err != nil {
			t.Fatal(name, err)
		}
		for _, tok := range tokens(string(text)) {
			if tok.isName() && !role.MatchString(tok.text) && !strings.HasPrefix(tok.text, "Zq") {
				out[tok.text] = true
			}
		}
	}
	return out
}

// TestNames gives every role each of the names of Python, of PyTorch's modules
// and of the scripts themselves: what is legal gives the same program but for the
// names, and none of them is one that means something else.
func TestNames(t *testing.T) {
	needs.Time(t, needs.Alone)
	const worst = "match case type _ __ __x __class__ __init__ self cls ctx torch nn F f lora_linear device json print range i p Model model optimizer ema v_ module training forward step super super_"
	names := scriptWords(t)
	for _, set := range []map[string]bool{builtins, program.ModuleAttributes, contextAttributes, keywords, set(worst)} {
		maps.Copy(names, set)
	}
	for n := range set("h layers o r t v w x y") { // names of the spec above
		delete(names, n)
	}
	every, everywhere := slices.Sorted(maps.Keys(names)), set(worst)
	var pairs [][2]string
	var what []string
	legal := 0
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		setting := settings[name]
		plain, err := printed(t, setting, nil)
		if err != nil {
			t.Fatal(err)
		}
		for n, r := range slices.Compact(slices.Sorted(slices.Values(role.FindAllString(roles, -1)))) {
			for i, hostile := range every {
				stride := 7 // some roles of each name, all of the worst
				if name != "" {
					stride = 29
				}
				if (name != "" || !everywhere[hostile]) && (i+n)%stride > 0 {
					continue
				}
				text, err := printed(t, setting, map[string]string{r: hostile})
				if err != nil {
					continue
				}
				legal++
				where := name + " " + r + " " + hostile
				aliased(t, where, string(plain), string(text))
				pairs, what = append(pairs, [2]string{string(plain), string(text)}), append(what, where)
			}
		}
	}
	t.Logf("%d names in %d roles: %d scripts", len(every), len(role.FindAllString(roles, -1)), legal)
	if legal < len(every) {
		t.Errorf("only %d of the scripts are legal", legal)
	}
	t.Run("as Python reads them", func(t *testing.T) { alike(t, pairs, what) })
}

// aliased says that two scripts are the same words, but that names beginning with
// zq have become others, each always the same one, and none that is taken.
func aliased(t *testing.T, where, plain, text string) {
	t.Helper()
	a, b := tokens(plain), tokens(withoutNotes(text))
	if len(a) != len(b) {
		t.Errorf("%s: other statements:\n%s", where, text)
		return
	}
	for i := range a {
		ours := role.MatchString(a[i].text) || strings.HasPrefix(a[i].text, "Zq")
		switch {
		case !ours && a[i].text != b[i].text && a[i].text+b[i].text != "ii_": // the counter of steps evades
			t.Errorf("%s: %s became %s", where, a[i].text, b[i].text)
			return
		case ours && (keywords[b[i].text] || strings.HasPrefix(b[i].text, "__") && strings.Trim(b[i].text, "_") != ""):
			t.Errorf("%s: %s became %s", where, a[i].text, b[i].text)
			return
		case ours && a[i].attr && a[i-2].text == "self" && program.ModuleAttributes[b[i].text]:
			t.Errorf("%s: an attribute %s, which modules have", where, b[i].text)
			return
		}
	}
}

// withoutNotes is a script without the comments that say which names are others.
func withoutNotes(text string) string {
	return regexp.MustCompile(`(?m)^# \w+ is \w+ in the spec:.*\n`).ReplaceAllString(text, "")
}

// alike has Python compare scripts, instruction by instruction.
func alike(t *testing.T, pairs [][2]string, what []string) {
	t.Helper()
	python := needs.Tool(t, "python3")
	in, err := json.Marshal(pairs)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(python, "testdata/alike.py")
	c.Stdin = bytes.NewReader(in)
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(out) {
		var n int
		var problems []string
		if err := json.Unmarshal(line, &[]any{&n, &problems}); err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s: %s", what[n], strings.Join(problems, "; "))
	}
}

// Patterns mean the modules of the spec, whatever those are called in the script.
func TestRenamedPatterns(t *testing.T) {
	text, err := printed(t, "freeze: {modules: [\"*zqmember\", \"zqchild.zqlist\", \"*\"], except: [\"zqchild.__*\"]}\n", map[string]string{"zqmember": "__a", "zqlist": "unshard"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`if covers(["zqchild._a", "zqchild.unshard_", "*"], name) and not covers(["zqchild._a", "zqchild._a.weight", "zqchild._a.bias"], name):`,
		"# _a is __a in the spec", "self._a = nn.Linear(8, 8)", "self.unshard_ = nn.ModuleList(",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// The variables that a closure takes die in the order of their names, which stays.
func TestCellsStayInOrder(t *testing.T) {
	job := &program.Job{Step: &program.Func{Kind: program.StepFunc, Slots: []string{"a0", "a", "b"}, Cells: []int{1, 0}}}
	s := newScript(job, nil)
	s.scope(nil, func() { s.line("def step():\n    a = " + s.stepName("a") + s.stepName("a0") + s.stepName("b")) })
	final := s.resolve()
	a, a0 := final[nameKey{local, nil, "a"}], final[nameKey{local, nil, "a0"}]
	if a >= a0 || a == "a" {
		t.Errorf("%s, %s", a, a0)
	}
}

func TestOutside(t *testing.T) {
	const text = `"a: b"
import torch.nn as nn
from x import (y)
for i in range(3):  # comment
    z = 1
def f(a, b=q, *args, k=None, **kw):
    c = a + d.e(g=h)
    def inner(own=c):
        return own, outer
    for m, (n) in args: pass
    with torch.no_grad() as w:
        c += 1e-5 + kw["u'"]
class K(Base):
    attr = 1
    def method(self):
        return attr, [p for p in self.x if p == last]
f(key=value)
`
	const want = "Base K attr d f h i last nn outer q range torch value x y z"
	if got := strings.Join(slices.Sorted(maps.Keys(outside(text))), " "); got != want {
		t.Errorf("%s\n%s", got, want)
	}
}
