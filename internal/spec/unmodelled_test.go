package spec

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestWorth asks for each key that is accepted and not modelled: the report says what
// the figures are worth without it.
func TestWorth(t *testing.T) {
	const minimal = "memplan: 1\nmodel: {preset: mlp%s}\n%s"
	for _, u := range unmodelleds {
		section, key, _ := strings.Cut(u.key, ".")
		value := u.value
		if value == "" {
			value = map[string]string{"attn_implementation": "flex_attention", "deepspeed": "ds.json", "compile": "true"}[key]
			if value == "" {
				value = "2"
			}
		}
		text := fmt.Sprintf(minimal, "", fmt.Sprintf("%s: {%s: %s}", section, key, value))
		if section == "model" {
			text = fmt.Sprintf(minimal, fmt.Sprintf(", %s: %s", key, value), "")
		}
		s, err := Parse("a.yaml", []byte(text), Options{})
		if err != nil {
			t.Errorf("%s: %v", u.key, err)
			continue
		}
		if got := s.NotModelled(); len(got) != 1 || !strings.HasPrefix(got[0].Text, u.key+": ") || !strings.HasSuffix(got[0].Text, "; "+u.worth) {
			t.Errorf("%s: %s: not modelled: %q", u.key, value, got)
		}
		for _, name := range u.also {
			_, err := Parse("a.yaml", []byte(fmt.Sprintf(minimal, "", name+": true")), Options{})
			if err == nil || !strings.Contains(err.Error(), "write "+u.key) || !strings.Contains(err.Error(), u.worth) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, text := range []string{"train: {compile: false}", "train: {compile: null}", "params: {p: false}\ntrain: {compile: \"${p}\"}",
		"parallel: {tensor: 1, pipeline: 1, sequence: 1, context: 1}"} {
		s, err := Parse("a.yaml", []byte(fmt.Sprintf(minimal, ", attn_implementation: \"${'sdpa'}\"", text)), Options{})
		if err != nil || len(s.NotModelled()) > 0 {
			t.Errorf("%s: %v, %v", text, s.NotModelled(), err)
		}
	}
}

// TestEveryLaterKey holds the tags of keys that are not modelled against the table.
func TestEveryLaterKey(t *testing.T) {
	for section, typ := range map[string]reflect.Type{"": reflect.TypeFor[Spec](), "train.": reflect.TypeFor[Train](), "model.": reflect.TypeFor[Model](), "parallel.": reflect.TypeFor[Parallel]()} {
		fields := fieldsOf(typ)
		for _, key := range fields.names {
			if later := typ.FieldByIndex(fields.index[key]).Tag.Get("later"); later != "" && worthOf(section+key, "") == "" {
				t.Errorf("%s%s: nothing says what the figures are worth", section, key)
			}
		}
	}
}
