//go:build !linux && !darwin

package cpu

import (
	"errors"
	"runtime"

	"github.com/memplan/memplan/internal/tensor"
)

func commit(n tensor.Bytes) ([]byte, error) { return aligned(n), nil }

func reserve(tensor.Bytes) ([]byte, error) {
	return nil, errors.New("expandable segments cannot be executed on the CPU under " + runtime.GOOS)
}

func unreserve([]byte) error { return nil }
func decommit([]byte) error  { return nil }
