// Package tensor holds the vocabulary of sizes that every other package uses:
// byte amounts with checked arithmetic, the element types of PyTorch, and
// layouts (sizes, strides, offset), from which follow what a view aliases and
// what a copy allocates.
//
// Nothing here knows about operators, autograd or devices.
package tensor

import "errors"

// ErrOverflow reports a size beyond MaxBytes.
var ErrOverflow = errors.New("size overflows the limit of 1 PiB")
