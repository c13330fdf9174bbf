package cuda

import (
	"slices"
	"strings"
	"testing"
)

// TestModules: each function is in a module that is small and has what it names; what adds up
// parts is in that of each function that leaves some.
func TestModules(t *testing.T) {
	families := map[string]bool{}
	for file, text := range modules(t) {
		c, err := newCode(text)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(text, ".entry "); len(c.names) != n || len(c.functions) != n {
			t.Errorf("%s has %d functions, not %d", file, n, len(c.names))
		}
		for _, name := range c.names {
			if joins(name) {
				if module, _, err := c.module("map_float", name); err == nil {
					t.Errorf("%s is alone, in %s", name, module)
				}
				continue
			}
			module, functions, err := c.module("", name)
			if err != nil {
				t.Fatal(err)
			}
			text := c.text(functions)
			if !strings.Contains(text, ".entry "+name+"(") || len(text) > 800<<10 {
				t.Errorf("%s: %s, of %d bytes, has %v", name, module, len(text), functions)
			}
			if family := c.functions[name].family; family != "" {
				families[family] = true
				if !slices.ContainsFunc(functions, joins) {
					t.Errorf("%s: nothing adds up its parts: %v", name, functions)
				}
			} else if strings.Contains(text, ".global .align") {
				t.Errorf("%s has memory that it does not name", name)
			}
		}
	}
	var got []string
	for f := range families {
		got = append(got, f)
	}
	slices.Sort(got)
	want := []string{"conv", "conv_bf16", "conv_f16", "gemm", "gemm_bf16", "gemm_f16", "max_float", "max_int", "min_float", "min_int", "row", "sum_float", "sum_int"}
	if !slices.Equal(got, want) {
		t.Errorf("families %v, not %v", got, want)
	}
}

// TestMakers: in each file, what a product leaves is added up by a function of the same module.
func TestMakers(t *testing.T) {
	for file, text := range modules(t) {
		c, err := newCode(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, tiles := range [][]tile{gemmTiles, stagedTiles} {
			for _, u := range []unit{{"", "", false}, {"_f16", "", true}, {"_bf16", "_bf16", true}} {
				for _, at := range tiles {
					first, finish := at.functions(u)
					if c.functions[first].text == "" {
						continue
					}
					if _, _, err := c.module(first, "gemm_finish"+finish); err != nil {
						t.Errorf("%s: %v", file, err)
					}
				}
			}
		}
	}
}
