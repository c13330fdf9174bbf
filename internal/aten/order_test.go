//go:build !race

package aten

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/ordertest"
)

// TestOrder builds the package with its files under other names, in other orders: the
// table is the same. No init() may say otherwise.
func TestOrder(t *testing.T) {
	needs.Time(t, "builds the package several times")
	if n := strings.Count(ordertest.Rows(t), "\n"); n < len(Rows()) {
		t.Fatalf("%d lines for %d rows", n, len(Rows()))
	}
}
