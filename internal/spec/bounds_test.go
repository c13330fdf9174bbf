package spec

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/tensor"
)

// allocated is how many bytes f allocates.
func allocated(f func()) tensor.Bytes {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return tensor.Bytes(after.TotalAlloc - before.TotalAlloc)
}

// Hostile files are refused before they take memory or time: work and bytes are
// those of a file of some hundred bytes.
func TestBounds(t *testing.T) {
	doubled := "params:\n  p0: [1, 2]\n"
	for i := range 60 {
		doubled += fmt.Sprintf("  p%d: ['${p%d}', '${p%d}']\n", i+1, i, i)
	}
	// 2^14 values, which are compared with themselves in each of so many expressions.
	near := "params:\n  p0: [1, 2]\n"
	for i := range 13 {
		near += fmt.Sprintf("  p%d: ['${p%d}', '${p%d}']\n", i+1, i, i)
	}
	aliases := "a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n"
	for i := range 9 {
		aliases += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	merges := "a0: &a0 {a: 1, b: 2}\n"
	for i := range 9 {
		merges += fmt.Sprintf("a%d: &a%d {<<: [%s]}\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	var unknown strings.Builder
	unknown.WriteString("params:\n")
	for i := range 10_000 {
		fmt.Fprintf(&unknown, "  p%d: '${q%d}'\n", i, i)
	}
	for _, c := range []struct{ name, text, want string }{
		{"lists that double", doubled, tooHeavy},
		{"lists of lists", "params: {a: '${[1] * 4096}', b: '${[a] * 4096}', c: '${[b] * 4096}'}\n", tooHeavy},
		{"comprehension of lists", "params: {a: '${[1] * 4096}', b: '${[a for i in range(4096)]}'}\n", tooHeavy},
		{"equality", near + "  e: '${[p13 == p13 for i in range(1000)]}'\n", "expression takes too long"},
		{"membership", near + "  e: '${[p13 in [p12, p12, p13] for i in range(1000)]}'\n", "expression takes too long"},
		{"tables", near + "  e: '${[{p12: 1, p13: 2}[p13] for i in range(1000)]}'\n", "expression takes too long"},
		{"sums", "params: {a: '${range(4096)}', e: '${[sum(a) for i in range(4096)]}'}\n", "expression takes too long"},
		{"strings of lists", "params: {a: '${range(4096)}', e: 'x${a}'}\n", "string is longer than"},
		{"a long string in lists", "params: {s: '" + strings.Repeat("x", 10_000) + "', e: '${[s] * 1000}'}\n", tooHeavy},
		{"expressions in a string", "params: {e: '" + strings.Repeat("${1}", 10_000) + "'}\n", "at most 256 expressions"},
		{"aliases of aliases", aliases, "do aliases repeat each other?"},
		{"merges of merges", merges, "do aliases repeat each other?"},
		{"nested lists", "a: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "\n", "nested deeper than"},
		{"nested mappings", "a: " + strings.Repeat("{a: ", 5000) + strings.Repeat("}", 5000) + "\n", "nested deeper than"},
		{"nested brackets", "params: {a: '${" + strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500) + "}'}\n", "nested deeper than 64"},
		{"unknown keys", keys(20_000), "and 19901 more"},
		{"unknown names", unknown.String(), "and 9901 more"},
		{"a long line", "train: {batch_size: " + strings.Repeat("x", 1<<20) + "}\n", "batch_size must be"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := limit.New(t.Context(), limit.Limits{})
			defer b.Close()
			m := b.Meter()
			var err error
			bytes := allocated(func() {
				_, err = Parse("a.yaml", []byte("memplan: 1\n"+c.text), Options{Meter: m})
				if err != nil {
					_ = err.Error()
				}
			})
			m.Close()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.400v", err)
			}
			if n := len(fmt.Sprint(err)); n > 1<<20 {
				t.Errorf("a message of %d bytes", n)
			}
			if most := 40*tensor.MiB + tensor.Bytes(100*len(c.text)); bytes > most { // some more under the race detector
				t.Errorf("%v allocated, more than %v", bytes, most)
			}
			if b.Work() > 10_000_000 {
				t.Errorf("%d steps of work", b.Work())
			}
		})
	}
}

// keys are so many keys that no spec has.
func keys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "q%d: 1\n", i)
	}
	return b.String()
}

// Many expressions, each within its own limit, meet that of the job.
func TestWorkOfExpressions(t *testing.T) {
	text := "memplan: 1\nparams:\n"
	for i := range 500 {
		text += fmt.Sprintf("  p%d: '${sum([sum(range(20)) for i in range(1000)])}'\n", i)
	}
	b := limit.New(t.Context(), limit.Limits{Time: 100 * 1e6}) // 0.1 s
	defer b.Close()
	parse := func() (err error) {
		defer limit.Catch(&err)
		_, err = Parse("a.yaml", []byte(text), Options{Meter: b.Meter()})
		return err
	}
	if _, met := parse().(*limit.Error); !met {
		t.Error("no limit was met")
	}
}
