//go:build !race

package kernel

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/ordertest"
)

// TestOrder builds the package with its files under other names, in other orders: the
// numbers of kernels are the same.
func TestOrder(t *testing.T) {
	needs.Time(t, "builds the package several times")
	if n := strings.Count(ordertest.Rows(t), "\n"); n != len(All()) {
		t.Fatalf("%d lines for %d kernels", n, len(All()))
	}
}
