package graph_test

import (
	"context"
	"os"
	"testing"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/needs"
)

// A spec that unrolls to too many statements is refused before it is unrolled.
func TestUnrolled(t *testing.T) {
	for _, name := range []string{"repeat_huge", "repeat_huge_nested", "repeat_huge_product"} {
		text, err := os.ReadFile(needs.File(t, "err", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		b := limit.New(context.Background(), limit.Limits{})
		if _, err := buildWithin(b, name, text); err == nil {
			t.Errorf("%s: no error", name)
		}
		const most = 10_000 // the work of some statements
		if n := b.Work(); n > most {
			t.Errorf("%s: %d units of work, more than %d", name, n, most)
		}
		b.Close()
	}
}
