package device

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/memplan/memplan/internal/nearest"
)

// Lookup returns a copy of the row that name means: a canonical name, an alias,
// or a family with one member. Case, spaces, underscores and hyphens do not
// count, nor do the leading words NVIDIA, GeForce, Tesla, RTX and GTX and the
// trailing words GPU and Generation, so that what nvidia-smi and
// torch.cuda.get_device_name print is accepted, and what people say.
//
// A family whose members differ in memory ("a100", "v100") is an error that
// lists them: either choice would be wrong by a factor of two for half of the
// users. The error for an unknown name has the nearest known one, if any is
// near, and says how else to describe a GPU.
func Lookup(name string) (*GPU, error) {
	key := compact(name)
	var family []string
	for i := range table {
		g := &table[i]
		if answersTo(g, key) {
			return clone(g), nil
		}
		if g.Family != "" && compact(g.Family) == key {
			family = append(family, g.Name)
		}
	}
	switch {
	case len(family) == 1:
		return Lookup(family[0])
	case len(family) > 1:
		return nil, fmt.Errorf("gpu %q comes in several sizes; allowed are %s", name, describe(family))
	}
	return nil, unknown(name, key)
}

func clone(g *GPU) *GPU {
	c := *g
	c.Aliases = slices.Clone(g.Aliases)
	return &c
}

// answersTo reports whether key, in compact form, is g's name or an alias.
func answersTo(g *GPU, key string) bool {
	return compact(g.Name) == key || slices.ContainsFunc(g.Aliases, func(a string) bool { return compact(a) == key })
}

// compact reduces a name to what distinguishes it.
func compact(name string) string {
	s := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || unicode.IsSpace(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	for _, word := range []string{"nvidia", "geforce", "tesla", "rtx", "gtx"} {
		s = strings.TrimPrefix(s, word)
	}
	for _, word := range []string{"gpu", "generation"} {
		s = strings.TrimSuffix(s, word)
	}
	return s
}

// describe lists rows with their sizes, by which a user tells them apart.
func describe(names []string) string {
	var parts []string
	for _, g := range table {
		if slices.Contains(names, g.Name) {
			parts = append(parts, fmt.Sprintf("%s (%v)", g.Name, g.Total.Value))
		}
	}
	return strings.Join(parts, ", ")
}

// unknown is the error for a name that no row answers to.
func unknown(name, key string) error {
	var keys []string                // what a slip is compared with
	meaning := map[string]string{}   // key → the name to suggest
	know := func(as, means string) { // names come before aliases, so that they win ties
		k := compact(as)
		if _, seen := meaning[k]; !seen {
			meaning[k] = means
			keys = append(keys, k)
		}
	}
	for _, g := range table {
		know(g.Name, g.Name)
	}
	for _, g := range table {
		for _, a := range g.Aliases {
			know(a, g.Name)
		}
		if g.Family != "" {
			know(g.Family, g.Family)
		}
	}
	hint := ""
	if n := nearest.To(key, keys); n != "" {
		hint = fmt.Sprintf("; did you mean %q?", meaning[n])
	}
	return fmt.Errorf("unknown gpu %q%s (memplan list devices shows the %d that are known; others need memory, arch and sms instead)", name, hint, len(table))
}
