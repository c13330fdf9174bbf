// Package importer reads the files of programs that train models, such as Axolotl,
// LLaMA-Factory, TRL and accelerate, and writes the spec that they mean. Each format
// has a table of its keys: what a key sets in the spec, why it has no effect on
// memory, or what it asks for that is not modelled.
package importer
