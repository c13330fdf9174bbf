// Package cli is the command line: one file for each command. A command turns
// its flags into options, makes one call into the packages below, and hands the
// result to a renderer.
//
// Only this package knows of processes: streams, environment and exit codes
// (see Main). Results go to standard output, everything else to standard
// error.
package cli
