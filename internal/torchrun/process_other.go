//go:build !unix

package torchrun

import "os/exec"

// apart makes the context of a command end it.
func apart(cmd *exec.Cmd) { cmd.WaitDelay = patience }
