package program

import "github.com/memplan/memplan/internal/op"

// Literal prints a value as Python writes it.
func Literal(v any) string { return op.Literal(v) }
