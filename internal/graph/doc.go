// Package graph turns a spec into a program: it resolves names, evaluates
// expressions, infers shapes and builds the tree of modules.
//
// A model is elaborated by running its forward pass on shapes alone, in the
// order of its statements: modules come into being when they are first called,
// with sizes inferred from their input, unless they were declared before. A
// block that is used again with the same params and input shapes gives the same
// class, so that twelve equal layers are elaborated once.
//
// Layers of torch.nn are rows of a table: a signature, and a function that
// makes parameters and composes operators (see [Layer]).
package graph
