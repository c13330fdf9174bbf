//go:build !linux

package files

import (
	"errors"
	"os"
)

// unnamed needs files without names, which this system has not.
func unnamed(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func link(*os.File, string) error { return errors.ErrUnsupported }
