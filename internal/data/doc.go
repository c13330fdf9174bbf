// Package data reads training data for jobs that are executed: arrays of the
// formats in which small data sets are published, and texts. Nothing of it
// matters to a prediction.
//
// # Formats
//
//   - IDX, the format of MNIST: a magic number, sizes big-endian, elements.
//   - CIFAR binary: records of one or two label bytes and an image of 3×32×32.
//   - npy, version 1 to 3, row-major, of integers, bools or floating numbers.
//   - Text: its bytes, or the tokens of a byte-pair encoding that is learned from
//     it.
//
// Each may be compressed with gzip. The first dimension of an array counts
// samples.
package data
