package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchrun"
)

// calibration is a context that was measured, as it is stored.
type calibration struct {
	GPU       string       `json:"gpu"` // of the table
	Name      string       `json:"name"`
	Low       tensor.Bytes `json:"low_bytes"`
	Context   tensor.Bytes `json:"context_bytes"`
	High      tensor.Bytes `json:"high_bytes"`
	How       string       `json:"how"`
	Measured  string       `json:"measured"` // a date
	Total     tensor.Bytes `json:"total_bytes,omitempty"`
	TorchText string       `json:"torch,omitempty"`
}

// calibrationFile is where calibrations are stored, as the environment says; "" if it
// does not say so.
func calibrationFile(env func(name string) (string, bool)) string {
	for _, v := range []struct {
		name string
		tail []string
	}{
		{"XDG_CONFIG_HOME", nil}, {"APPDATA", nil}, {"HOME", []string{".config"}}, {"USERPROFILE", []string{"AppData", "Roaming"}},
	} {
		if dir, _ := env(v.name); filepath.IsAbs(dir) {
			return filepath.Join(append(append([]string{dir}, v.tail...), "memplan", "calibration.json")...)
		}
	}
	return ""
}

// calibrations reads what is stored.
func (s *Streams) calibrations() ([]calibration, error) {
	path := calibrationFile(s.Env)
	if path == "" {
		return nil, nil
	}
	text, err := files.Read(path, files.MaxText)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []calibration
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w; memplan calibrate --forget removes it", printable.File(path), err)
	}
	return slices.DeleteFunc(all, func(c calibration) bool { return c.Low <= 0 || c.Low > c.Context || c.Context > c.High }), nil
}

// calibrated are the contexts that jobs are planned with.
func (s *Streams) calibrated() ([]spec.Calibrated, error) {
	all, err := s.calibrations()
	var out []spec.Calibrated
	for _, c := range all {
		out = append(out, spec.Calibrated{GPU: c.GPU, Value: c.Context, Low: c.Low, High: c.High,
			Says: fmt.Sprintf("memplan calibrate, %s, %s: %s", c.Measured, c.Name, c.How)})
	}
	return out, err
}

// store puts a calibration in the place of the one of its GPU; nil forgets all.
func (s *Streams) store(c *calibration) (string, error) {
	path := calibrationFile(s.Env)
	if path == "" {
		return "", errors.New("there is no folder for configurations: set XDG_CONFIG_HOME or HOME")
	}
	if c == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return path, err
		}
		return path, nil
	}
	all, err := s.calibrations()
	if err != nil {
		return path, err
	}
	all = append(slices.DeleteFunc(all, func(o calibration) bool { return o.GPU == c.GPU }), *c)
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return path, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return path, err
	}
	return path, files.WriteBytes(path, append(text, '\n'))
}

func newCalibrate(s *Streams) *cobra.Command {
	var (
		python, typed, gpu string
		forget             bool
	)
	c := &cobra.Command{
		Use:   "calibrate",
		Short: "Measure the CUDA context on this machine's GPU, for later jobs",
		Long: `Measure what a PyTorch process takes of the GPU beside its tensors: the CUDA
context before anything ran, and after a few small training steps, for which kernels
of convolutions, matrix products, attention and optimizers were loaded. Later jobs
on such a GPU are planned with it; device.context of a spec says otherwise, and
memplan check does not read it, so that a check says the same on every machine.

Python must have PyTorch with CUDA. Without it, --nvidia-smi takes the figure that
nvidia-smi shows for a process which holds no more than a context:

  python3 -c "import torch; torch.cuda.init(); input()"`,
		Example: `  memplan calibrate --python .venv/bin/python
  memplan calibrate --gpu rtx-4090 --nvidia-smi 412MiB`,
		Args: atMost(0, "calibrate takes no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case forget:
				path, err := s.store(nil)
				if err == nil {
					fmt.Fprintf(s.Out, "forgotten: %s\n", printable.File(path))
				}
				return err
			case typed != "":
				return s.calibrateTyped(gpu, typed)
			case gpu != "":
				return usagef("--gpu is for --nvidia-smi; PyTorch says itself which GPU it has")
			}
			return s.calibrateTorch(c, python)
		},
	}
	c.Flags().StringVar(&python, "python", "python3", "command that runs Python with PyTorch")
	c.Flags().StringVar(&typed, "nvidia-smi", "", "memory of a process with a context alone, as nvidia-smi shows it, such as 412MiB")
	c.Flags().StringVar(&gpu, "gpu", "", "GPU of that process; see memplan list devices")
	c.Flags().BoolVar(&forget, "forget", false, "forget all that was measured")
	return c
}

// today is the date of a measurement.
func today() string { return time.Now().Format(time.DateOnly) }

// calibrateTyped stores a context that the user read off.
func (s *Streams) calibrateTyped(gpu, typed string) error {
	if gpu == "" {
		return usagef("--nvidia-smi needs --gpu: of which GPU is the figure?")
	}
	g, err := device.Lookup(gpu)
	if err != nil {
		return usagef("--gpu: %w", err)
	}
	n, err := tensor.ParseBytes(typed)
	switch {
	case err != nil:
		return usagef("--nvidia-smi: %w", err)
	case n < tensor.MiB:
		return usagef("--nvidia-smi must be a size such as 412MiB, not %v", n)
	case n >= g.Total.Value:
		return usagef("--nvidia-smi %s: %s has no more than %v", typed, g.Name, g.Total.Value)
	}
	kernels := g.Context.High - g.Context.Low
	return s.calibrate(&calibration{GPU: g.Name, Name: g.Display, Low: n, Context: n + g.Context.Value - g.Context.Low, High: n + kernels, How: "nvidia-smi of an idle job", Measured: today()},
		fmt.Sprintf("%v with a context alone; kernels of the first steps add up to %v, as others saw on such GPUs", n, kernels))
}

// calibrateTorch measures with the user's PyTorch.
func (s *Streams) calibrateTorch(c *cobra.Command, command string) error {
	python := torchrun.Python(strings.Fields(command))
	if len(python) == 0 {
		return usagef("--python must name a command")
	}
	m, err := python.Calibrate(c.Context())
	if err != nil {
		return fmt.Errorf("--python: %w", err)
	}
	if strings.EqualFold(m.Loading, string(device.Eager)) {
		return fmt.Errorf("CUDA_MODULE_LOADING is %s, and jobs are planned with lazy loading: unset it, or set device.context of jobs that have it to %v", m.Loading, m.Loaded)
	}
	g, err := device.Lookup(m.Name)
	if err != nil {
		g, err = bySize(m)
	}
	if err != nil {
		return fmt.Errorf("%w; set device.context: %v", err, m.Loaded)
	}
	how := fmt.Sprintf("PyTorch %s, CUDA %s", m.Torch, m.CUDA)
	return s.calibrate(&calibration{GPU: g.Name, Name: m.Name, Low: m.Bare, Context: m.Loaded, High: m.Loaded + (m.Loaded - m.Bare), How: how, Measured: today(), Total: m.Memory, TorchText: m.Torch},
		fmt.Sprintf("%v, of which %v before kernels are loaded", m.Loaded, m.Bare))
}

// bySize finds the GPU of a family whose members have other sizes.
func bySize(m *torchrun.Measured) (*device.GPU, error) {
	var found *device.GPU
	for _, g := range device.All() {
		if g.Arch == m.Arch && g.SMs == m.SMs && m.Memory >= g.Total.Low && m.Memory <= g.Total.High {
			if found != nil {
				return nil, fmt.Errorf("%s may be %s or %s", m.Name, found.Name, g.Name)
			}
			found = &g
		}
	}
	if found == nil {
		return nil, fmt.Errorf("memplan does not know %s (sm_%d, %d SMs, %v)", m.Name, m.Arch, m.SMs, m.Memory)
	}
	return found, nil
}

// calibrate stores a calibration and says so.
func (s *Streams) calibrate(c *calibration, context string) error {
	path, err := s.store(c)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "GPU      %s: %s (%s)\ncontext  %s\nstored   %s; later jobs on %s take it (device.context says otherwise)\n",
		c.GPU, printable.Text(c.Name), printable.Text(c.How), context, printable.File(path), c.GPU)
	return err
}
