// Package kerneltest draws calls of kernels at random, knows what they must
// give, and compares that with what a device gave. Tests of devices use it:
//
//	for range 100 {
//		c := kerneltest.Random(k, tensor.Float32, rng, 4096)
//		got, err := c.Run(device)
//		if err == nil {
//			err = c.Compare(got)
//		}
//		if err != nil {
//			t.Errorf("%v: %v", c, err)
//		}
//	}
//
// What a kernel must give is computed in float64 by the plainest loops there
// are, which share nothing with the devices. Operands have sizes of 1, odd ones
// and larger ones; they are contiguous, transposed, broadcast, or have gaps, and
// what a device must not touch is checked to be as it was.
package kerneltest
