// Command startup runs a command 20 times and prints how long it took from
// start to exit, and its peak resident memory.
//
//	go run ./tools/startup COMMAND [ARGUMENT...]
package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

const runs = 20

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: startup COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	var times []time.Duration
	var rss int64
	for range runs {
		c := exec.Command(os.Args[1], os.Args[2:]...)
		c.Stderr = os.Stderr
		start := time.Now()
		if err := c.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "startup:", err)
			os.Exit(1)
		}
		times = append(times, time.Since(start))
		if u, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
			rss = max(rss, u.Maxrss) // KiB on Linux
		}
	}
	slices.Sort(times)
	fmt.Printf("start to exit: best %.1f ms, median %.1f ms; peak resident memory %.1f MiB\n",
		ms(times[0]), ms(times[runs/2]), float64(rss)/1024)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
