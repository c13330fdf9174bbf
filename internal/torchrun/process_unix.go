//go:build unix

package torchrun

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// apart starts a command in a process group of its own, and makes its context end
// all of it: at first as Ctrl-C does, so that torchrun ends what it started.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		pid := cmd.Process.Pid
		all := descendants(pid) // while they have their parents
		err := syscall.Kill(-pid, syscall.SIGINT)
		go func() {
			time.Sleep(patience)
			for _, p := range append(all, descendants(pid)...) {
				syscall.Kill(p, syscall.SIGKILL)
			}
			syscall.Kill(-pid, syscall.SIGKILL)
		}()
		return err
	}
	cmd.WaitDelay = 2 * patience
}

// descendants are the processes that a process started, and those that they did,
// where the system tells: those of torchrun are in groups of their own.
func descendants(pid int) []int {
	var out []int
	lists, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, f := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(f); err == nil && !slices.Contains(out, child) {
				out = append(append(out, child), descendants(child)...)
			}
		}
	}
	return out
}
