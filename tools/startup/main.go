// Command startup runs a command 20 times and prints how long it took from
// start to exit, its processor time, and its peak resident memory. With -presets it
// prints the processor time of an estimate of each preset, and of one with --quick:
// the least of five runs.
//
//	go run ./tools/startup COMMAND [ARGUMENT...]
//	go run ./tools/startup -presets MEMPLAN [PRESET...]
package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/memplan/memplan/specs"
)

const (
	runs       = 20
	presetRuns = 5
)

func main() {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "-presets":
		presets(os.Args[2], os.Args[3:])
		return
	case len(os.Args) < 2 || os.Args[1] == "-presets":
		fmt.Fprintln(os.Stderr, "usage: startup COMMAND [ARGUMENT...] | -presets MEMPLAN [PRESET...]")
		os.Exit(2)
	}
	var times, processor []time.Duration
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
		processor = append(processor, used(c))
		if u, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
			rss = max(rss, u.Maxrss) // KiB on Linux
		}
	}
	slices.Sort(times)
	fmt.Printf("start to exit: best %.1f ms, median %.1f ms; processor time: least %.1f ms; peak resident memory %.1f MiB\n",
		ms(times[0]), ms(times[runs/2]), ms(slices.Min(processor)), float64(rss)/1024)
}

// presets prints a table of presets, of all without names.
func presets(memplan string, names []string) {
	if len(names) == 0 {
		names = specs.Names()
		for _, t := range specs.HFTypes() {
			names = append(names, "hf/"+t)
		}
	}
	fmt.Printf("%-28s %10s %10s %10s\n", "preset", "quick ms", "whole ms", "ratio")
next:
	for _, name := range names {
		var least [2]time.Duration
		for i, more := range [][]string{{"--quick"}, {"--no-advise"}} {
			for run := range presetRuns {
				c := exec.Command(memplan, append([]string{"estimate", "preset:" + name}, more...)...)
				if err := c.Run(); err != nil {
					fmt.Printf("%-28s %v\n", name, err) // some need a configuration
					continue next
				}
				if t := used(c); run == 0 || t < least[i] {
					least[i] = t
				}
			}
		}
		fmt.Printf("%-28s %10.0f %10.0f %10.2f\n", name, ms(least[0]), ms(least[1]), float64(least[1])/float64(least[0]))
	}
}

// used is the processor time of a command that has ended.
func used(c *exec.Cmd) time.Duration { return c.ProcessState.UserTime() + c.ProcessState.SystemTime() }

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
