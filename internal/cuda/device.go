//go:build cuda

package cuda

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cuda/driver"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// The driver's library, and the variable that names another one.
const (
	library         = "libcuda.so.1"
	libraryVariable = "MEMPLAN_LIBCUDA"
)

var (
	//go:embed kernels/module.ptx.gz
	module70 []byte
	//go:embed kernels/module_80.ptx.gz
	module80 []byte
)

// ptx are the modules of a GPU of that compute capability.
func ptx(capability int) (texts []string, err error) {
	modules := [][]byte{module70}
	if capability >= 80 {
		modules = append(modules, module80)
	}
	for _, compressed := range modules {
		r, err := gzip.NewReader(bytes.NewReader(compressed))
		if err != nil {
			return nil, fmt.Errorf("the kernels' code: %w", err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("the kernels' code: %w", err)
		}
		texts = append(texts, string(text))
	}
	return texts, nil
}

// load opens the driver. It may be called again.
func load() error {
	path := library
	if v := os.Getenv(libraryVariable); v != "" {
		path = v
	}
	_, err := driver.Load(path)
	return err
}

// Available returns how many GPUs can be opened; why says what is missing if
// there is none.
func Available() (n int, why error) {
	if err := load(); err != nil {
		return 0, err
	}
	n, err := cu.NumDevices()
	if err == nil && n == 0 {
		err = errors.New("the CUDA driver finds no GPU")
	}
	return n, err
}

// Device is a GPU. All calls of the driver are made by one goroutine that is
// locked to its thread, in the order in which they were asked for, on the
// default stream.
type Device struct {
	name string
	work chan func() // for the owner
	done chan struct{}
	gpu  cu.Device
	is   gpu

	// Of the owner alone.
	code      []*code
	modules   map[string]cu.Module // by the file of code and the name
	functions map[[2]string]function
	held      map[allocsim.Address]tensor.Bytes
	virtual   virtual
	total     tensor.Bytes // of held, and mapped
	limit     tensor.Bytes // of total; 0: none
	failed    error        // of the first launch that failed; nothing is certain after it
	told      bool         // somebody was told of it
	cells     []unsafe.Pointer

	mu     sync.Mutex
	closed bool
}

// oldest is the compute capability for which the kernels are compiled; the driver
// makes code for later ones of it.
const oldest = 7

// queued is how many launches may wait for the owner.
const queued = 1024

// Open makes a GPU ready: it takes the primary context, as PyTorch does.
func Open(index int) (*Device, error) {
	n, err := Available()
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= n {
		return nil, fmt.Errorf("there is no GPU %d: there are %d, counted from 0", index, n)
	}
	d := &Device{work: make(chan func(), queued), done: make(chan struct{}), gpu: cu.Device(index),
		modules: map[string]cu.Module{}, functions: map[[2]string]function{}, held: map[allocsim.Address]tensor.Bytes{}, virtual: newVirtual(index)}
	go d.own()
	if err := d.do(d.start); err != nil {
		_ = d.stop(func() error { return nil })
		return nil, fmt.Errorf("GPU %d: %w", index, err)
	}
	return d, nil
}

// own is the goroutine that owns the context. Its thread ends with it, and with the
// thread what the driver keeps for one, such as that the context is current.
func (d *Device) own() {
	runtime.LockOSThread()
	defer close(d.done)
	for f := range d.work {
		f()
	}
}

var errClosed = errors.New("the GPU has been closed")

// post leaves work to the owner.
func (d *Device) post(f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	d.work <- f
	return nil
}

// do waits for work of the owner.
func (d *Device) do(f func() error) error {
	result := make(chan error, 1)
	if err := d.post(func() { result <- f() }); err != nil {
		return err
	}
	return <-result
}

// checked is do, unless a launch has failed before.
func (d *Device) checked(f func() error) error {
	return d.do(func() error {
		if d.failed == nil {
			if err := f(); err == nil || d.failed == nil {
				return err
			}
		}
		d.told = true
		return d.failed
	})
}

func (d *Device) start() error {
	var err error
	if d.name, err = d.gpu.Name(); err != nil {
		return err
	}
	var attributes [3]int
	for i, a := range []cu.DeviceAttribute{cu.ComputeCapabilityMajor, cu.ComputeCapabilityMinor, cu.MultiprocessorCount} {
		if attributes[i], err = d.gpu.Attribute(a); err != nil {
			return err
		}
	}
	major, minor := attributes[0], attributes[1]
	if major < oldest {
		return fmt.Errorf("%s has compute capability %d.%d; the kernels need %d.0 (Volta) or later", d.name, major, minor, oldest)
	}
	d.is = gpu{sms: int64(attributes[2]), capability: 10*major + minor}
	context, err := d.gpu.RetainPrimaryCtx()
	if err != nil {
		return fmt.Errorf("its context: %w", err)
	}
	if err = cu.SetCurrentContext(context); err == nil {
		err = d.load()
	}
	if err != nil {
		return errors.Join(err, d.gpu.ReleasePrimaryCtx())
	}
	return nil
}

// load reads the kernels' code.
func (d *Device) load() error {
	texts, err := ptx(d.is.capability)
	if err != nil {
		return err
	}
	for _, text := range texts {
		c, err := newCode(text)
		if err != nil {
			return err
		}
		d.code = append(d.code, c)
	}
	return nil
}

// moduleOf loads a module; an error has what the driver's compiler says, too.
func moduleOf(text string) (cu.Module, error) {
	var pinned runtime.Pinner
	defer pinned.Unpin()
	log := make([]byte, 16<<10)
	pinned.Pin(&log[0])
	m, err := cu.LoadDataEx(text, &cu.JITErrorLogBuffer{Buffer: log})
	if said, _, _ := bytes.Cut(log, []byte{0}); err != nil && len(said) > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(said))
	}
	return m, err
}

// stop ends the owner, whose last work is f; none comes after it. A second call
// waits for the first, and is told so.
func (d *Device) stop(f func() error) error {
	result := make(chan error, 1)
	d.mu.Lock()
	again := d.closed
	if !again {
		d.closed = true
		d.work <- func() { result <- f() }
		close(d.work)
	}
	d.mu.Unlock()
	<-d.done
	if again {
		return errClosed
	}
	return <-result
}

// Close implements runtime.Device. What was not freed is freed. Of a GPU that has
// failed nothing can be given back; that is an error only if no call has reported the
// failure.
func (d *Device) Close() error {
	err := d.stop(func() error {
		var errs []error
		for a := range d.held {
			errs = append(errs, cu.MemFree(cu.DevicePtr(a)))
		}
		errs = append(errs, d.virtual.close())
		for _, m := range d.modules {
			errs = append(errs, m.Unload())
		}
		errs = append(errs, d.gpu.ReleasePrimaryCtx())
		switch {
		case d.failed == nil:
			return errors.Join(errs...)
		case d.told:
			return nil
		}
		return d.failed
	})
	if errors.Is(err, errClosed) {
		return nil
	}
	return err
}

// OnHost implements runtime.Device.
func (d *Device) OnHost() bool { return false }

// Name implements runtime.Device.
func (d *Device) Name() string { return d.name }

// Limit makes the GPU one of n bytes at most, of which no other process has any; 0
// takes the limit away.
func (d *Device) Limit(n tensor.Bytes) {
	_ = d.post(func() { d.limit = n })
}

// Malloc implements allocsim.Driver.
func (d *Device) Malloc(n tensor.Bytes) (a allocsim.Address, err error) {
	err = d.checked(func() error {
		if err := d.within(n); err != nil {
			return err
		}
		p, err := cu.MemAlloc(int64(n))
		if err != nil {
			if err = outOfMemory(err, "cuMemAlloc", n); !errors.Is(err, allocsim.ErrOutOfMemory) {
				err = d.fail(err)
			}
			return err
		}
		a = allocsim.Address(p)
		d.held[a] = n
		d.total += n
		return nil
	})
	return a, err
}

// within reports that n bytes more are not within the limit.
func (d *Device) within(n tensor.Bytes) error {
	if d.limit > 0 && n > d.limit-d.total {
		return fmt.Errorf("%w: %d bytes of the %d that may be taken are left, %d are asked for",
			allocsim.ErrOutOfMemory, int64(d.limit-d.total), int64(d.limit), int64(n))
	}
	return nil
}

// Free implements allocsim.Driver.
func (d *Device) Free(a allocsim.Address, n tensor.Bytes) error {
	return d.checked(func() error {
		if held, ok := d.held[a]; !ok || held != n {
			return fmt.Errorf("no %d bytes are allocated at %#x", int64(n), uint64(a))
		}
		if err := cu.Synchronize(); err != nil {
			return d.fail(err)
		}
		delete(d.held, a)
		d.total -= n
		return d.fail(cu.MemFree(cu.DevicePtr(a)))
	})
}

// Used is what the driver says that all processes take of the GPU; 0 if it fails.
func (d *Device) Used() (used tensor.Bytes) {
	_ = d.do(func() error {
		free, total, err := cu.MemInfo()
		if err == nil {
			used = tensor.Bytes(total - free)
		}
		return err
	})
	return used
}

// MemInfo implements allocsim.Driver; a GPU that fails has no memory.
func (d *Device) MemInfo() (free, total tensor.Bytes) {
	_ = d.checked(func() error {
		f, t, err := cu.MemInfo()
		free, total = tensor.Bytes(f), tensor.Bytes(t)
		if d.limit > 0 {
			free, total = min(free, d.limit-d.total), min(total, d.limit)
		}
		return err
	})
	return free, total
}

// Write implements runtime.Device.
func (d *Device) Write(to allocsim.Address, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	return d.checked(func() error {
		return d.fail(cu.MemcpyHtoD(cu.DevicePtr(to), unsafe.Pointer(&from[0]), int64(len(from))))
	})
}

// Read implements runtime.Device.
func (d *Device) Read(to []byte, from allocsim.Address) error {
	if len(to) == 0 {
		return nil
	}
	return d.checked(func() error {
		return d.fail(cu.MemcpyDtoH(unsafe.Pointer(&to[0]), cu.DevicePtr(from), int64(len(to))))
	})
}

// Set implements runtime.Device.
func (d *Device) Set(at allocsim.Address, n tensor.Bytes, b byte) error {
	if n == 0 {
		return nil
	}
	return d.checked(func() error { return d.fail(cu.MemsetD8(cu.DevicePtr(at), b, int64(n))) })
}

// Synchronize implements runtime.Device.
func (d *Device) Synchronize() error {
	return d.checked(func() error { return d.fail(cu.Synchronize()) })
}

// fail keeps the first error of work on the GPU: after an illegal address, say,
// the context is of no use any more.
func (d *Device) fail(err error) error {
	if err != nil && d.failed == nil {
		d.failed = fmt.Errorf("the GPU failed: %w", err)
	}
	return d.failed
}

// Launch implements runtime.Device. A failure of the launch shows at the next
// call that waits.
func (d *Device) Launch(c *kernel.Call) error {
	launches, err := d.is.plan(c)
	if err != nil || len(launches) == 0 {
		return err
	}
	return d.post(func() {
		if d.failed != nil {
			return
		}
		if err := d.run(launches); err != nil {
			// What the driver reports may be of a kernel that was launched before.
			_ = d.fail(fmt.Errorf("kernel %s, or one before it: %w", c.Kernel.Name, err))
		}
	})
}

// run starts the functions of a call.
func (d *Device) run(launches []launch) error {
	maker := ""
	for _, l := range launches {
		if !joins(l.function) {
			maker = l.function
		}
		f, err := d.function(maker, l.function)
		if err != nil {
			return err
		}
		if err := d.begin(f, l); err != nil {
			return err
		}
	}
	return nil
}

// function is one of the modules.
type function struct {
	cu.Function
	shared int // bytes of shared memory that a launch gives it
}

// function finds one, and loads its module. maker is the one whose parts it adds up, if that is
// what it does.
func (d *Device) function(maker, name string) (f function, err error) {
	key := [2]string{maker, name}
	f, ok := d.functions[key]
	if ok {
		return f, nil
	}
	i := slices.IndexFunc(d.code, func(c *code) bool { return c.functions[name].text != "" })
	if i < 0 {
		return f, fmt.Errorf("there is no function %s", name)
	}
	of, names, err := d.code[i].module(maker, name)
	if err != nil {
		return f, err
	}
	of = fmt.Sprintf("%d/%s", i, of)
	m, ok := d.modules[of]
	if !ok {
		if m, err = moduleOf(d.code[i].text(names)); err != nil {
			if err = fmt.Errorf("loading %s: %w", strings.Join(names, ", "), err); errors.Is(err, cu.OutOfMemory) {
				err = fmt.Errorf("%w (kernels are loaded when they are first used: leave them some 20 MiB beside the job)", err)
			}
			return f, err
		}
		d.modules[of] = m
	}
	if f.Function, err = m.Function(name); err != nil {
		return f, fmt.Errorf("function %s: %w", name, err)
	}
	if f.shared = int(dynamicShared(name)); f.shared > 0 {
		// The binding's type is the driver's handle, and has no method for this.
		if err := driver.AllowShared(*(*unsafe.Pointer)(unsafe.Pointer(&f.Function)), f.shared); err != nil {
			return f, fmt.Errorf("function %s, with %d bytes of shared memory: %w", name, f.shared, err)
		}
	}
	d.functions[key] = f
	return f, nil
}

// begin starts one function.
func (d *Device) begin(f function, l launch) error {
	d.cells = d.cells[:0]
	for i := range l.args {
		d.cells = append(d.cells, unsafe.Pointer(&l.args[i]))
	}
	return f.Launch(int(l.x), int(l.y), 1, threads, 1, 1, f.shared, cu.NoStream, d.cells)
}
