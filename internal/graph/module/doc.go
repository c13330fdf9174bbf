// Package module makes the modules of libraries: the class of one, with its
// parameters, and the body of its forward as calls of operators, from the
// signature of its constructor, bound arguments and what is known of its inputs
// (see [Layer] and [Builder]). What goes in are values and an [Env]; what comes out is a
// class of the program, or a [Mistake] as a panic. It knows no layer by name and
// nothing of specs.
package module
