//go:build !race

package layers

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/ordertest"
)

// TestOrder builds the package with its files in other orders: the table is the same.
func TestOrder(t *testing.T) {
	needs.Time(t, "builds the package several times")
	if n := strings.Count(ordertest.Rows(t), "\n"); n != len(table)+1 {
		t.Errorf("%d lines for %d layers", n, len(table))
	}
}
