package note

import (
	"encoding/json"
	"reflect"
	"regexp"
	"testing"
)

// TestCodes holds the table: names that programs can match, and rules.
func TestCodes(t *testing.T) {
	name, rule := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`), regexp.MustCompile(`^(MP\d{3})?$`)
	for i, c := range Codes() {
		if !name.MatchString(c.Name) || !rule.MatchString(c.Rule) || c.Rule == "" && c.Most != "" || c.Doc == "" {
			t.Errorf("%+v", c)
		}
		if i > 0 && Codes()[i-1].Name >= c.Name {
			t.Errorf("%s comes after %s", c.Name, Codes()[i-1].Name)
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("two codes have one name")
			}
		}()
		code(Code{Name: Asked.Name})
	}()
}

func TestNote(t *testing.T) {
	n := UnusedInput.New("input %q is never used", "y").At("a.yaml", 4)
	for _, c := range []struct {
		n    Note
		want string
	}{
		{n, `{"code":"unused-input","text":"input \"y\" is never used","place":{"file":"a.yaml","line":4}}`},
		{NoEffect.New("x").Of("train.ema", "eval"), `{"code":"no-effect","text":"x","place":{"keys":["train.ema","eval"]}}`},
		{Uncertain.New("less (%d)", 3).InReport("less (%d; see below)", 3), `{"code":"uncertain","text":"less (3; see below)"}`},
		{Operator.New("x").OfOp("conv"), `{"code":"operator","text":"x","place":{"op":"conv"}}`},
	} {
		got, err := json.Marshal(c.n)
		if err != nil || string(got) != c.want {
			t.Errorf("%s, %v; want %s", got, err, c.want)
		}
		var back Note
		if err := json.Unmarshal(got, &back); err != nil || *back.Code != *c.n.Code || back.Text != c.n.Text || !reflect.DeepEqual(back.Place, c.n.Place) {
			t.Errorf("%s becomes %+v, %v", got, back, err)
		}
	}
	if got := Uncertain.New("less").InReport("less; see below").Alone(); got != "less" {
		t.Errorf("alone: %q", got)
	}
	if list := Add(Add(Add(nil, n), n), NoEffect.New("%s", n.Text)); len(list) != 2 {
		t.Errorf("%d notes: %q", len(list), list)
	}
}
