package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/runtime"
)

// readWeights opens the files of --init and --resume.
func (e *execution) readWeights(c *cobra.Command, o *runtime.Options) error {
	switch {
	case e.init != "":
		f, err := openSafetensors("init", e.init)
		o.Init = f
		return err
	case e.resume != "":
		f, err := openSafetensors("resume", e.resume)
		if err != nil {
			return err
		}
		if o.Resume, err = runtime.NewCheckpoint(f); err != nil {
			return usagef("--resume %s: %w", e.resume, err)
		}
		if c.Flags().Changed("seed") && e.seed != o.Resume.Seed {
			return usagef("--seed %d: the run in %s has seed %d", e.seed, e.resume, o.Resume.Seed)
		}
		if o.Resume.Step >= o.Steps {
			return usagef("--resume %s: the run has done %d steps, and is to do %d; --steps says how many in all", e.resume, o.Resume.Step, o.Steps)
		}
	}
	return nil
}

// openSafetensors reads the header of a file that a flag names; its tensors are read later.
func openSafetensors(flag, path string) (*runtime.Safetensors, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	f, err := runtime.OpenSafetensors(file, info.Size())
	if err != nil {
		return nil, usagef("--%s %s: %w", flag, path, err)
	}
	return f, nil
}
