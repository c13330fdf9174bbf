// Command memplan plans the GPU memory of a training job.
package main

import (
	"os"

	"github.com/memplan/memplan/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], cli.System())) }
