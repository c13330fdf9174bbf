package spec

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// testTensor is an Object such as package graph passes.
type testTensor []int64

func (x testTensor) Attr(name string) (any, bool) {
	if name != "shape" {
		return nil, false
	}
	dims := make([]any, len(x))
	for i, d := range x {
		dims[i] = d
	}
	return dims, true
}

func (testTensor) AttrNames() []string { return []string{"shape"} }

func testEnv() *paramEnv {
	e := &paramEnv{vals: map[string]any{
		"n": int64(4), "f": 0.5, "s": "abc", "t": true, "none": nil, "l": []any{int64(1), int64(2), int64(3)},
		"x": testTensor{8, 3, 32}, "big": int64(1) << 62, "wrong": Invalid{},
	}}
	e.names = []string{"n", "f", "s", "t", "none", "l", "x", "big", "wrong"}
	return e
}

// scalarOf reads one plain scalar, as in a spec.
func scalarOf(t *testing.T, text string) (*Value, *Errors) {
	t.Helper()
	errs := &Errors{}
	v := readYAML([]byte("k: \""+strings.ReplaceAll(text, `"`, `\"`)+"\""), errs)
	if v == nil {
		t.Fatalf("%s: %v", text, errs.List)
	}
	return v.Get("k"), errs
}

func list(items ...any) []any { return items }

func TestEval(t *testing.T) {
	i := func(n int64) any { return n }
	for _, c := range []struct {
		expr string
		want any
	}{
		{"${1}", i(1)}, {"${n}", i(4)}, {"${-n}", i(-4)}, {"${+n}", i(4)}, {"${(n)}", i(4)},
		{"${1 + 2 * 3}", i(7)}, {"${(1 + 2) * 3}", i(9)}, {"${7 // 2}", i(3)}, {"${-7 // 2}", i(-4)}, {"${-7 % 3}", i(2)},
		{"${7 % -3}", i(-2)}, {"${7 / 2}", 3.5}, {"${8 / 2}", 4.0}, {"${1 << 10}", i(1024)}, {"${-1 << 3}", i(-8)}, {"${-9 >> 1}", i(-5)},
		{"${9 >> 100}", i(0)}, {"${f * n}", 2.0}, {"${7.5 // 2}", 3.0}, {"${-0.5 % 2}", 1.5}, {"${1e3}", 1000.0},
		{"${1 == 1.0}", true}, {"${t == 1}", false}, {"${t + 1}", i(2)}, {"${s == 'abc'}", true}, {"${l == [1, 2, 3]}", true},
		{"${n != 4}", false}, {"${3 < n}", true}, {"${n <= 3}", false}, {"${n >= 4.0}", true}, {"${f > 1}", false},
		{"${2 in l}", true}, {"${5 not in l}", true}, {"${not n}", false}, {"${none == None}", true}, {"${null}", nil},
		{"${n and s}", "abc"}, {"${none or n}", i(4)}, {"${False and missing}", false}, {"${True or missing}", true},
		{"${'a' if n > 3 else missing}", "a"}, {"${true}", true}, {"${false}", false},
		{"${l[0]}", i(1)}, {"${l[-1]}", i(3)}, {"${l[1:]}", list(i(2), i(3))}, {"${l[:-1]}", list(i(1), i(2))}, {"${l[2:1]}", list()},
		{"${l[-100:100]}", list(i(1), i(2), i(3))}, {"${(1, 2)}", list(i(1), i(2))}, {"${[]}", list()},
		{"${l + [n]}", list(i(1), i(2), i(3), i(4))}, {"${[0] * 3}", list(i(0), i(0), i(0))}, {"${2 * [1]}", list(i(1), i(1))}, {"${s + 'd'}", "abcd"},
		{"${[2 * k for k in l if k > 1]}", list(i(4), i(6))}, {"${[a * b for a in l for b in [1, 10]]}", list(i(1), i(10), i(2), i(20), i(3), i(30))},
		{"${[n for n in l] + [n]}", list(i(1), i(2), i(3), i(4))}, // the variable ends with the list
		{"${len(l)}", i(3)}, {"${range(3)}", list(i(0), i(1), i(2))}, {"${range(3, 0, -2)}", list(i(3), i(1))}, {"${range(0)}", list()},
		{"${min(3, 1, 2)}", i(1)}, {"${max(l)}", i(3)}, {"${max(1, 2.5)}", 2.5}, {"${sum(l)}", i(6)}, {"${sum([])}", i(0)}, {"${sum([1, 0.5])}", 1.5},
		{"${abs(-3)}", i(3)}, {"${abs(-0.5)}", 0.5}, {"${1 / sqrt(64)}", 0.125}, {"${sqrt(2.25)}", 1.5}, {"${int(2.9)}", i(2)}, {"${int(-2.9)}", i(-2)},
		{"${2 ** 10}", i(1024)}, {"${n ** -1}", 0.25}, {"${n ** 0.5}", 2.0}, {"${-2 ** 2}", i(-4)}, {"${(-2) ** 2}", i(4)}, {"${2 ** 3 ** 2}", i(512)},
		{"${3 * 2 ** 2 * 5}", i(60)}, {"${2 ** -1 ** 2}", 0.5}, {"${2**n + 1}", i(17)}, {"${0 ** 0}", i(1)}, {"${(-1) ** 5}", i(-1)}, {"${'**@'}", "**@"},
		{"${l[::-1]}", list(i(3), i(2), i(1))}, {"${l[::2]}", list(i(1), i(3))}, {"${l[-1:0:-1]}", list(i(3), i(2))}, {"${l[5:0:-2]}", list(i(3))},
		{"${[0, *l, *[n]]}", list(i(0), i(1), i(2), i(3), i(4))}, {"${[*l + [n], 5]}", list(i(1), i(2), i(3), i(4), i(5))}, {"${(*l, n)[3]}", i(4)},
		{"${[a * b for a, b in zip(l, [4, 5])]}", list(i(4), i(10))}, {"${[k + v for (k, v) in enumerate(l)]}", list(i(1), i(3), i(5))},
		{"${reversed(l)}", list(i(3), i(2), i(1))}, {"${round(2.5)}", i(2)}, {"${round(3)}", i(3)},
		{"${x.shape[1]}", i(3)}, {"${x.shape[-1] // n}", i(8)}, {"${len(x.shape)}", i(3)},
		{"a${n}b", "a4b"}, {"${n}${n}", "44"}, {"${f} ${t} ${none} ${l} ${['a']}", `0.5 True None [1, 2, 3] ["a"]`}, {"$n {n}", "$n {n}"},
		{"${'}'}", "}"},
		{"${{'abc': n, 'd': missing}[s]}", i(4)}, {"${{3: 'x', 4: [1]}[n][0]}", i(1)},
	} {
		v, errs := scalarOf(t, c.expr)
		if len(errs.List) > 0 {
			t.Errorf("%s: %v", c.expr, errs.List)
			continue
		}
		got, err := v.Eval(testEnv())
		if l, ok := got.([]any); ok && len(l) == 0 {
			got = list()
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s = %#v, %v; want %#v", c.expr, got, err, c.want)
		}
	}
}

// TestEvalFails gives, for each mistake, the column that is marked in the
// scalar (from 1, without the quote), and a part of the message.
func TestEvalFails(t *testing.T) {
	for _, c := range []struct {
		expr string
		col  int
		msg  string
	}{
		{"${1 // 0}", 3, "division by zero"},
		{"${1 / (n - 4)}", 3, "division by zero"},
		{"${n % 0.0}", 3, "division by zero"},
		{"${1 + nn}", 7, `unknown name "nn"`},
		{"ab${1}cd${q}", 11, `unknown name "q"`},
		{"${big * 2}", 3, "integer overflow"},
		{"${big + big}", 3, "integer overflow"},
		{"${-big - big - 1}", 3, "integer overflow"},
		{"${1 << 63}", 3, "integer overflow"},
		{"${1 << -1}", 3, "integer overflow"},
		{"${1 >> -1}", 3, "negative shift"},
		{"${sum([big, big])}", 3, "integer overflow"},
		{"${1e308 * 10}", 3, "out of range"},
		{"${12345678901234567890}", 3, "does not fit 64 bits"},
		{"${l[3]}", 3, "index 3 is out of range"},
		{"${l['a']}", 5, "must be an integer"},
		{"${n[0]}", 3, "cannot be indexed"},
		{"${n[0:1]}", 3, "cannot be sliced"},
		{"${l[::0]}", 7, "step of a slice must not be 0"},
		{"${2 ** 63}", 3, "integer overflow"},
		{"${0 ** -1}", 3, "division by zero"},
		{"${(-8) ** 0.5}", 3, "out of range"},
		{"${n @ n}", 3, "operator @ does not apply to numbers"},
		{"${'a' ** n}", 3, "operator ** does not apply to a string and an integer"},
		{"${[1, *n]}", 7, "* needs a list, not an integer"},
		{"${zip(l, n)}", 10, "zip needs lists, not an integer"},
		{"${enumerate(l, l)}", 3, "enumerate needs one list"},
		{"${x.size}", 3, "allowed are shape"},
		{"${n.shape}", 3, "has no attributes"},
		{"${s - 1}", 3, "operator - does not apply to a string and an integer"},
		{"${-s}", 3, "operator - does not apply"},
		{"${1 in 2}", 8, `"in" needs a list`},
		{"${len(1)}", 3, "len needs one list"},
		{"${max()}", 3, "max of nothing"},
		{"${max('a', 'b')}", 3, "needs numbers"},
		{"${range(1, 2, 0)}", 3, "step other than 0"},
		{"${range(1.5)}", 3, "range needs integers"},
		{"${open('x')}", 3, `unknown function "open"`},
		{"${lenn(l)}", 3, `did you mean "len"?`},
		{"${len(l=1)}", 7, "no keyword arguments"},
		{"${x.shape()}", 3, "only the functions"},
		{"${range(1000000)}", 3, "list is longer than"},
		{"${[0] * 100000}", 3, "list is longer than"},
		{"${[0] * 3000 + [0] * 3000}", 3, "list is longer than"},
		{"${[k for k in n]}", 15, `"for" needs a list`},
		{"${[a for a, b in l]}", 10, "2 variables cannot unpack 1"},
		{"${[a for a, (b, c) in l]}", 10, "variables of \"for\" are names"},
		{"${{1: 2}}", 3, "not part of the language"},
		{"${{'ab': 2, 'x': 3}[s]}", 21, `"abc" is not in the table; known are ab, x`},
		{"${lambda: 1}", 3, "not part of the language"},
		{"${[a for a in range(4000) for b in range(4000) if b < 0]}", 51, "takes too long"},
	} {
		v, errs := scalarOf(t, c.expr)
		if len(errs.List) > 0 {
			t.Errorf("%s: %v", c.expr, errs.List)
			continue
		}
		got, err := v.Eval(testEnv())
		ee, ok := err.(*EvalError)
		if !ok || !strings.Contains(ee.Msg, c.msg) {
			t.Errorf("%s = %v, %v; want an error with %q", c.expr, got, err, c.msg)
			continue
		}
		if col := ee.Span.Col - len(`k: "`); col != c.col || ee.Span.Len < 1 {
			t.Errorf("%s: marks column %d, %d characters; want column %d", c.expr, col, ee.Span.Len, c.col)
		}
	}
}

// TestEvalSilent checks that the consequences of a mistake are not reported.
func TestEvalSilent(t *testing.T) {
	v, _ := scalarOf(t, "${wrong + 1}")
	_, err := v.Eval(testEnv())
	errs := &Errors{}
	errs.AddErr(v.Span, err)
	if err == nil || len(errs.List) > 0 {
		t.Errorf("error %v, reported as %v", err, errs.List)
	}
}

func TestExprSyntax(t *testing.T) {
	for _, c := range []struct {
		expr string
		col  int
		msg  string
	}{
		{"${", 1, "not closed"}, {"a ${1", 3, "not closed"}, {"${}", 3, "empty"}, {"${ }", 3, "empty"}, {"${1 +}", 6, "unexpected end"},
		{"${1 2}", 5, "unexpected"}, {"${a b}", 5, "unexpected"}, {"${(1}", 5, ""}, {"${1 = 2}", 5, ""}, {"é${)}", 4, ""},
		{"${2 ** }", 7, "unexpected end"}, {"${** 2}", 4, "unexpected"}, {"${2 @}", 6, "unexpected end"},
		{"${" + strings.Repeat("(", 100) + "}", 3, "nested deeper"}, {"${" + strings.Repeat("1+", 1500) + "1}", 3, "longer than"},
		{"${" + strings.Repeat("-", 100) + "1}", 3, "nested deeper"},
	} {
		v, errs := scalarOf(t, c.expr)
		if len(errs.List) != 1 {
			t.Errorf("%s: %d mistakes, want 1: %v", shorten(c.expr), len(errs.List), errs.List)
			continue
		}
		d := errs.List[0]
		if col := d.Col - len(`k: "`); col != c.col || !strings.Contains(d.Msg, c.msg) {
			t.Errorf("%s: %q at column %d; want %q at %d", shorten(c.expr), d.Msg, col, c.msg, c.col)
		}
		if _, err := v.Eval(testEnv()); err == nil || err.Error() != "" {
			t.Errorf("%s: evaluates with error %v, want one without a message", shorten(c.expr), err)
		}
	}
}

func TestShow(t *testing.T) {
	for _, c := range []struct {
		x    any
		want string
	}{
		{nil, "null"}, {true, "true"}, {int64(-3), "-3"}, {0.5, "0.5"}, {3.0, "3"}, {"a", `"a"`}, {list(int64(1), "b"), `[1, "b"]`},
		{testTensor{1}, "a tensor"}, {strings.Repeat("x", 99), `"` + strings.Repeat("x", 37) + `..."`},
	} {
		if got := Show(c.x); got != c.want {
			t.Errorf("Show(%#v) = %s, want %s", c.x, got, c.want)
		}
	}
}

// FuzzEval checks that expressions end, with a value of the known types or a
// mistake at a place.
func FuzzEval(f *testing.F) {
	for _, s := range []string{
		"${1 + 2 * n}", "${[a * b for a in l for b in range(10) if a in l]}", "${x.shape[-1] // n}", "a${f}b${s}", "${not t and s or none}",
		"${sum(l[1:]) if len(l) > 2 else max(l)}", "${1 << 62 >> 3}", "${-9223372036854775807 - 1}", "${'\\''}", "${{}", "${lambda x: x}",
		"${[[[[1]]]]}", "${- - -1}", "${9223372036854775807 * 9223372036854775807}", "${0x10 + 0o7 + 0b1}", "${b'a'}", "${1e400}", "${\"}\"}",
		"${[0] * 4096 == [0] * 4096}", "${wrong}", "${range(-9223372036854775807, 9223372036854775807, 4611686018427387904)}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tpl, d := parseTemplate(s)
		if d != nil {
			if d.Msg == "" || d.Col < 0 {
				t.Errorf("%q: bad mistake %+v", s, d)
			}
			return
		}
		tpl.col, tpl.inline = 1, true
		v := &Value{Kind: Str, Str: s, Span: Span{Pos: Pos{1, 1}}, expr: tpl}
		x, err := v.Eval(testEnv())
		if err != nil {
			ee, ok := err.(*EvalError)
			if !ok || ee.Span.Line != 1 || ee.Span.Col < 1 || (ee.Msg == "" && !strings.Contains(s, "wrong")) {
				t.Errorf("%q: bad error %#v", s, err)
			}
			return
		}
		if kind := typeName(x); kind == "a tensor" && reflect.TypeOf(x) != reflect.TypeFor[testTensor]() {
			t.Errorf("%q: value of type %T", s, x)
		}
		if again, err := v.Eval(testEnv()); err != nil || fmt.Sprint(again) != fmt.Sprint(x) {
			t.Errorf("%q: first %v, then %v, %v", s, x, again, err)
		}
	})
}
