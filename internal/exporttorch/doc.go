// Package exporttorch prints a program as a PyTorch training script.
//
// The script is the definition of the spec language: what a spec means is what
// its script does. It needs PyTorch alone, and prints the peaks of memory of
// each step as JSON. Names, order of statements and nesting of calls are the
// program's, because they decide when memory is freed.
package exporttorch
