// Package value is what is known of a value before it is computed: the expression
// that gives it, and a tensor's shape and type, the items of a tuple or a list, or
// that it is None. It knows of the operators' tensors and of the language of
// expressions, and of neither modules nor specs.
package value
