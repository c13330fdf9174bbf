// Package spec reads model specs: YAML in, a typed tree with a position on
// every scalar out.
//
// Reading goes in three steps. The YAML text becomes a tree of [Value], where
// scalars have the types of YAML 1.2's core schema and ${...} expressions are
// parsed. Sections with a fixed shape (train, data, device, ...) are decoded
// into structs by reflection; what those structs may hold, the JSON Schema of
// the language says too, from the same fields. Lists of layers become [Entry]
// values, whose expressions are evaluated later, when the shapes are known.
//
// All errors of a file are collected, sorted and printed with the source line
// and a caret. Nothing here knows which layers and operators exist.
package spec
