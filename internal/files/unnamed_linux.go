package files

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// unnamed opens a file without a name in a folder: if the process is killed, nothing is
// left of it.
func unnamed(dir string) (*os.File, error) {
	if _, err := os.Stat("/proc/self/fd"); err != nil { // through which it gets its name
		return nil, err
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// link gives an unnamed file a name that must be free.
func link(f *os.File, name string) error {
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
}
