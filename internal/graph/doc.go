// Package graph turns a spec into a program: it resolves names, evaluates
// expressions, infers shapes and builds the tree of modules. A spec goes in, and
// what the machine is; a program comes out, or all mistakes of the spec at once.
//
// A model is elaborated by running its forward pass on shapes alone, in the
// order of its statements: modules come into being when they are first called,
// with sizes inferred from their input, unless they were declared before. A
// block that is used again with the same params and input shapes gives the same
// class, so that twelve equal layers are elaborated once.
//
// Modules of libraries come from layers, configurations of Hugging Face models from
// hf, and classes that take the place of others from techniques; none of these knows
// of the elaborator. The files of this package lie in layers, of which none uses one
// above (internal/archtest): entries, blocks and modules; the statements of a step; the
// job.
package graph
