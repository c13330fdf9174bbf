//go:build !cuda

// Package driver opens the CUDA driver's library at run time; without the build
// tag cuda there is nothing in it.
package driver
