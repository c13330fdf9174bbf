// Command digits writes images of digits and their labels as MNIST has them, four files of IDX in a
// folder, to try memplan run on. The images are drawn (package internal/data/digits): they
// are no photographs of handwriting, and figures on them are none of MNIST.
//
//	go run ./tools/digits -train 20000 -test 2000 digits
package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/memplan/memplan/internal/data/digits"
)

func main() {
	train, test, seed := flag.Int("train", 20000, "images to train on"), flag.Int("test", 2000, "images for evaluations"), flag.Uint64("seed", 1, "seed")
	flag.Parse()
	if flag.NArg() != 1 || *train < 1 || *test < 1 {
		fmt.Fprintln(os.Stderr, "usage: digits [-train N] [-test N] [-seed N] FOLDER")
		os.Exit(2)
	}
	if err := write(flag.Arg(0), *train, *test, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "digits:", err)
		os.Exit(1)
	}
}

func write(folder string, train, test int, seed uint64) error {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	images, labels := digits.Draw(train+test, seed)
	size := digits.Side * digits.Side
	for name, file := range map[string][]byte{
		"train-images-idx3-ubyte.gz": digits.IDX(images[:train*size], train, digits.Side, digits.Side),
		"train-labels-idx1-ubyte.gz": digits.IDX(labels[:train], train),
		"t10k-images-idx3-ubyte.gz":  digits.IDX(images[train*size:], test, digits.Side, digits.Side),
		"t10k-labels-idx1-ubyte.gz":  digits.IDX(labels[train:], test),
	} {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(file)
		if err := z.Close(); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name), b.Bytes(), 0o666); err != nil {
			return err
		}
	}
	return nil
}
