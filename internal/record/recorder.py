"""Runs a training script on a pretended GPU and writes down what it does.

`memplan record` puts this file's folder on PYTHONPATH as sitecustomize, so it is loaded at the start of every Python that the command starts, and waits
for `import torch`. Then there is a GPU: tensors on `cuda` are tensors of PyTorch like any other, with the dispatch keys and the device of real
ones, over storages without memory. They are made by DLPack, whose deleter tells when a storage dies. Each operator below autograd and autocast
has a kernel for CUDA in Python, which works out the results' shapes (those of the meta device) and writes a line.
"""

import atexit
import collections
import ctypes
import functools
import gzip
import importlib.machinery
import importlib.util
import json
import linecache
import math
import mmap
import os
import platform
import select
import signal
import sys
import threading
import types
import warnings
import weakref

OPTIONS = json.loads(os.environ.get("MEMPLAN_RECORD") or "{}")
OUT = OPTIONS.get("out", "")
CLAIM = OPTIONS.get("claim") or OUT + ".claimed"
STEPS = OPTIONS.get("steps", 3)
GPU = {"name": "NVIDIA H100 80GB HBM3", "arch": "sm90", "sms": 132, "memory": 80 << 30, **OPTIONS.get("gpu", {})}
ANSWERS = OPTIONS.get("answers", {})
MAJOR, MINOR = int(GPU["arch"][2:-1]), int(GPU["arch"][-1:])

torch = None  # set by install


# ---- the recording ---------------------------------------------------------------------------------------------------------------------------------


class Writer:
    """The file: lines of JSON, compressed. Tables are written when something is first used."""

    def __init__(self):
        self.file = None
        self.lines = []
        self.closed = False
        self.cleared = None  # storages that die while autocast's cache is cleared
        self.tables = {"str": {}, "schema": {}, "meta": {}, "frame": {}}
        self.lock = threading.RLock()

    def open(self):
        """Claims the recording for this process: the first one that uses the GPU."""
        if self.file or self.closed:
            return
        try:
            self.file = gzip.open(OUT, "wb", 5) if claim() else None
        except OSError as e:
            sys.stderr.write(f"memplan record: {e}\n")
        if not self.file:
            self.closed = True
            return
        head = {
            "torch": str(torch.__version__), "cuda_build": CUDA_BUILD, "python": "%d.%d" % sys.version_info[:2], "transformers": version("transformers"),
            "gpu": GPU, "argv": [short(a) for a in sys.argv], "steps": STEPS, "batch": OPTIONS.get("batch", {}), "answers": ANSWERS,
            "alloc_conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF") or "",
            "env": {k: v for k, v in os.environ.items() if k in KEPT_ENV},
        }
        self.write(["memplan", 1, head])

    def write(self, line):
        if self.closed:
            return
        if not self.file:
            if line[0] in WAITS:
                self.lines.append(line)
                return
            self.open()
            if self.closed:
                return
            pending, self.lines = self.lines, []
            for l in pending:
                self.emit(l)
        self.emit(line)

    def emit(self, line):
        self.file.write(DUMPS(line).encode() + b"\n")

    def intern(self, table, key, *line):
        n = self.tables[table].get(key)
        if n is None:
            n = self.tables[table][key] = len(self.tables[table])
            self.write([table, *(line or (key,))])
        return n

    def str(self, text):
        return self.intern("str", text)

    def end(self, reason, text="", frame=None):
        with self.lock:
            if self.file and not self.closed:
                self.write(["end", {"reason": reason, "text": text, "frame": frame}])
                self.closed = True
                self.file.close()
            self.closed = True


DUMPS = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
WAITS = {"str", "schema", "meta", "frame", "enter", "leave", "phase", "mark", "doubt", "asked"}  # what is no work of the GPU waits for some
KEPT_ENV = {"PYTORCH_NVML_BASED_CUDA_CHECK", "CUDA_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG", "TORCH_CUDNN_V8_API_DISABLED", "TORCH_CUDNN_USE_HEURISTIC_MODE_B",
            "NVIDIA_TF32_OVERRIDE", "PYTORCH_NO_CUDA_MEMORY_CACHING", "WORLD_SIZE", "LOCAL_RANK"}
writer = Writer()
CUDA_BUILD = False


def claim():
    """One process of all those that the command starts is recorded."""
    try:
        os.close(os.open(CLAIM, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        return False
    except OSError as e:
        sys.stderr.write(f"memplan record: {e}\n")
        return False
    return True


def version(module):
    m = sys.modules.get(module)
    return getattr(m, "__version__", None) if m else None


HERE = os.getcwd()
LIBRARY = tuple(os.path.realpath(p) + os.sep for p in {os.path.dirname(os.__file__), *(p for p in sys.path if p.endswith(("-packages",)))})
own = {}  # file name of code -> how it is written, or None for libraries


def short(path):
    """A path without what is above the working folder."""
    if not isinstance(path, str) or os.sep not in path:
        return path
    full = os.path.abspath(path)
    if full.startswith(HERE + os.sep):
        return full[len(HERE) + 1:]
    for p in sys.path:
        if p and full.startswith(p.rstrip(os.sep) + os.sep):
            return full[len(p.rstrip(os.sep)) + 1:]
    return os.path.basename(path)


def owned(name):
    if name.startswith("<"):
        return None
    full = os.path.realpath(name)
    if full == THIS or f"{os.sep}torch{os.sep}" in full and full.startswith(TORCH):
        return None
    if full.startswith(LIBRARY) or f"{os.sep}site-packages{os.sep}" in full or f"{os.sep}dist-packages{os.sep}" in full:
        return None
    return short(name)


THIS = os.path.realpath(__file__)
TORCH = "\0"
last_frame = [None]


def where():
    """The innermost line of the script's own, or in the backward pass the line that called it."""
    f = sys._getframe(1)
    while f is not None:
        code = f.f_code
        name = code.co_filename
        at = own.get(name, 0)
        if at == 0:
            at = own[name] = owned(name)
        if at is not None:
            key = (at, f.f_lineno, code.co_name)
            n = writer.tables["frame"].get(key)
            if n is None:
                n = writer.intern("frame", key, *key)
            if threading.current_thread() is threading.main_thread():
                last_frame[0] = n
            return n
        f = f.f_back
    return last_frame[0]


def doubt(text):
    if text not in doubted:
        doubted.add(text)
        writer.write(["doubt", text, where()])


doubted = set()


# ---- storages and tensors --------------------------------------------------------------------------------------------------------------------------


class DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", DLDevice), ("ndim", ctypes.c_int32), ("dtype", DLDataType), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]


capsule = ctypes.pythonapi.PyCapsule_New
capsule.restype = ctypes.py_object
capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

managed = {}  # address of a DLManagedTensor -> it, what it points to, the storage's address
storages = {}  # address of a storage -> its number, bytes, device
numbers = [0]
NEXT = [0x7A0000000000]  # addresses that no memory has
used = collections.Counter()  # bytes alive, rounded as the allocator does, and their maximum, by device
peak = collections.Counter()


@Deleter
def died(address):
    _, _, base = managed.pop(address)
    number, size, device = storages.pop(base)
    of_all.discard(base)
    used[device] -= size + 511 & ~511
    if number is None:
        return
    if writer.cleared is not None:
        writer.cleared.append(number)
    else:
        writer.write(["free", number])


deleter = died


def storage(size, device, origin):
    """A new storage: its address."""
    base = NEXT[0]
    NEXT[0] = base + (size + 4095 & ~4095) + 4096
    number = None
    if not writer.closed:
        number = numbers[0]
        numbers[0] += 1
        writer.write(["storage", f"cuda:{device}", size, origin])
    storages[base] = number, size, device
    used[device] += size + 511 & ~511
    if used[device] > peak[device]:
        peak[device] = used[device]
    return base


def new(sizes, strides, dtype, device, origin="op"):
    """A tensor on the GPU over a new storage."""
    code = DTYPES.get(dtype)
    n = len(sizes)
    size = dtype.itemsize
    if 0 in sizes:
        extent = 0
    else:
        extent = 1
        for a, b in zip(sizes, strides):
            extent += (a - 1) * b
    base = storage(extent * size, device, origin)
    m = DLManagedTensor()
    if code is None:
        dims = (ctypes.c_int64 * 2)(extent * size, 1)
        m.tensor.ndim = 1
        m.tensor.dtype.code, m.tensor.dtype.bits = 1, 8
        m.tensor.strides = ctypes.addressof(dims) + 8
    else:
        dims = (ctypes.c_int64 * (2 * n + 1))(*sizes, *strides)
        m.tensor.ndim = n
        m.tensor.dtype.code, m.tensor.dtype.bits = code
        m.tensor.strides = ctypes.addressof(dims) + 8 * n
    m.tensor.data = base
    m.tensor.device.type, m.tensor.device.id = 2, device
    m.tensor.dtype.lanes = 1
    m.tensor.shape = ctypes.addressof(dims)
    m.deleter = deleter
    address = ctypes.addressof(m)
    managed[address] = m, dims, base
    t = torch._C._from_dlpack(capsule(address, b"dltensor", None))
    if code is None:
        t = as_strided(view_dtype(t, dtype), sizes, strides, 0)
    return t


def as_strided(t, sizes, strides, offset):
    return AS_STRIDED(CPU_KEYS, t, sizes, strides, offset)


def view_dtype(t, dtype):
    with torch._C._AutoDispatchBelowAutograd():
        return VIEW_DTYPE(CPU_KEYS, t, dtype)


def base_of(t):
    p = t.data_ptr()
    return p - t.storage_offset() * t.itemsize if p else t.untyped_storage().data_ptr()


# ---- operators -------------------------------------------------------------------------------------------------------------------------------------

in_kernel = threading.local()
stream_of = threading.local()
device_of = threading.local()


def current_device():
    return getattr(device_of, "index", 0)


def current_stream():
    return getattr(stream_of, "id", 0)


def meta_number(t):
    key = t.dtype, tuple(t.shape), t.stride() if t.layout is torch.strided else ()
    n = writer.tables["meta"].get(key)
    if n is None:
        n = writer.intern("meta", key, str(t.dtype)[6:], list(key[1]), list(key[2]))
    return n


def show(a):
    """An argument as JSON; of tensors where they lie, never what is in them."""
    if a is None or a is True or a is False or type(a) is int or type(a) is str:
        return a
    if isinstance(a, torch.Tensor):
        return show_tensor(a)
    if isinstance(a, (list, tuple)):
        return [show(x) for x in a]
    if isinstance(a, float):
        return a if math.isfinite(a) else {"float": repr(a)}
    if isinstance(a, torch.dtype):
        return {"dtype": str(a)[6:]}
    if isinstance(a, torch.device):
        return {"device": str(a)}
    if isinstance(a, torch.layout):
        return {"layout": str(a)[6:]}
    if isinstance(a, torch.memory_format):
        return {"memory_format": str(a)[6:]}
    if isinstance(a, complex):
        return {"complex": [repr(a.real), repr(a.imag)]}
    if isinstance(a, (bool, int)):
        return int(a)
    return {"object": type(a).__name__}


def show_tensor(t):
    flags = (1 if t.requires_grad else 0) | (2 if isinstance(t, torch.nn.Parameter) else 0)
    if t.layout is not torch.strided:
        return {"t": [-1, meta_number(t), 0, flags], "layout": str(t.layout)[6:]}
    if t.is_conj() or t.is_neg():
        flags |= 4
    if t.is_cuda:
        s = storages.get(base_of(t))
        if s is None or s[0] is None:
            return {"t": [-1, meta_number(t), t.storage_offset(), flags]}
        return {"t": [s[0], meta_number(t), t.storage_offset(), flags]}
    number = numbers[0]
    numbers[0] += 1
    writer.write(["storage", str(t.device), t.untyped_storage().nbytes() if t.device.type == "cpu" else 0, "input"])
    in_kernel.host.append(number)
    return {"t": [number, meta_number(t), t.storage_offset(), flags]}


names = {}


def record(op, args, kwargs, outs):
    """Writes the line of an operator."""
    if writer.closed:
        return
    in_kernel.host = host = []
    schema = names.get(op)
    if schema is None:
        s = op._schema
        given = [a.default_value for a in s.arguments if not a.kwarg_only]
        schema = names[op] = writer.intern("schema", str(s)), len(s.returns) != 1, given
    a = [show(x) for x in args]
    a += [show(x) for x in schema[2][len(a):]]  # PyTorch leaves out those that have their default
    k = {n: show(x) for n, x in kwargs.items()} if kwargs else {}
    o = [show(x) for x in (outs if schema[1] and isinstance(outs, (list, tuple)) else [outs])] if outs is not None else []
    backward = torch._C._current_graph_task_id() != -1
    writer.write(["op", schema[0], a, k, o, {"stream": current_stream(), "frame": where(), "autocast": autocast(), "backward": backward}])
    for n in host:
        writer.write(["free", n])


def autocast():
    if not torch.is_autocast_enabled("cuda"):
        return None
    return str(torch.get_autocast_dtype("cuda"))[6:]


def asked(what, answer):
    writer.write(["asked", what, answer, where()])
    return answer


def answer(what, default):
    """What the script reads is answered by the option for its line, for the operator, or as is said in docs/record.md."""
    n = where()
    if ANSWERS:
        for key, number in writer.tables["frame"].items():
            if number == n and f"{key[0]}:{key[1]}" in ANSWERS:
                return ANSWERS[f"{key[0]}:{key[1]}"]
        if what in ANSWERS:
            return ANSWERS[what]
    return default


def to_meta(a, seen):
    """Arguments with tensors of the meta device in place of those of the GPU."""
    if isinstance(a, torch.Tensor):
        m = torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device="meta")
        seen.append((m, a))
        return m
    if isinstance(a, (list, tuple)):
        return type(a)(to_meta(x, seen) for x in a) if type(a) in (list, tuple) else [to_meta(x, seen) for x in a]
    if isinstance(a, torch.device):
        return META
    return a


def key_of(a):
    if isinstance(a, torch.Tensor):
        return "t", a.dtype, tuple(a.shape), a.stride(), a.is_cuda
    if isinstance(a, (list, tuple)):
        return tuple([key_of(x) for x in a])
    if isinstance(a, (int, float, bool, complex)):
        return type(a), repr(a)
    try:
        hash(a)
    except TypeError:
        return repr(a)
    return a


plans = {}


def flatten(a, out):
    if isinstance(a, torch.Tensor):
        out.append(a)
    elif isinstance(a, (list, tuple)):
        for x in a:
            flatten(x, out)
    return out


def plan(op, args, kwargs):
    """What an operator returns, worked out on the meta device: for each result a new tensor, a view of an input or an input itself."""
    seen = []
    margs = to_meta(args, seen)
    mkwargs = {n: to_meta(x, seen) for n, x in kwargs.items()}
    outs = run_meta(op, margs, mkwargs)
    inputs = {id(m): i for i, (m, _) in enumerate(seen)}
    parts = {m.untyped_storage()._cdata: i for i, (m, _) in enumerate(seen)}

    def of(o):
        if isinstance(o, torch.Tensor):
            if id(o) in inputs:
                return "self", inputs[id(o)]
            i = parts.get(o.untyped_storage()._cdata)
            sizes, strides = tuple(o.shape), o.stride()
            if o.device.type == "cpu":
                return "host", sizes, o.dtype
            if i is not None:
                return "view", i, sizes, strides, o.storage_offset(), o.dtype, o.is_conj(), o.is_neg()
            return "new", sizes, strides, o.dtype
        if isinstance(o, (list, tuple)):
            return "list", [of(x) for x in o], type(o)
        return "value", o

    return of(outs)


def run_meta(op, args, kwargs):
    special = META_RULES.get(op._schema.name)
    if special:
        return special(op, args, kwargs)
    return op(*args, **kwargs)


def device_in(args, kwargs):
    d = kwargs.get("device") if kwargs else None
    if d is not None:
        d = torch.device(d)
        return d.index if d.index is not None else current_device()
    for t in flatten(args, []):
        if t.is_cuda:
            return t.device.index
    return current_device()


def build(p, tensors, device):
    kind = p[0]
    if kind == "new":
        return new(p[1], p[2], p[3], device)
    if kind == "host":
        return torch.zeros(p[1], dtype=p[2])
    if kind == "self":
        return tensors[p[1]]
    if kind == "view":
        t = tensors[p[1]]
        if p[5] is not t.dtype:
            offset = t.storage_offset() * t.itemsize // p[5].itemsize
            return as_strided(view_as(t, p[5]), p[2], p[3], p[4] + offset)
        return lazily(as_strided(t, p[2], p[3], t.storage_offset() + p[4]), p[6], p[7])
    if kind == "list":
        parts = [build(x, tensors, device) for x in p[1]]
        return parts if p[2] is list else tuple(parts)
    return p[1]


def lazily(t, conj, neg):
    """A view, which stands for the conjugate or the negative of what it views: operators that do not know such views make a copy before."""
    if conj:
        torch._C._set_conj(t, not t.is_conj())
    if neg:
        torch._C._set_neg(t, not t.is_neg())
    return t


def view_as(t, dtype):
    """A tensor of another type over the same storage."""
    flat = as_strided(t, (t.untyped_storage().nbytes() // t.itemsize,), (1,), 0)
    return view_dtype(flat, dtype)


def kernel(op):
    """The kernel of an operator for the pretended GPU."""
    schema = op._schema
    special = SPECIAL.get(schema.name) or SPECIAL.get(schema.name + "." + schema.overload_name)
    if special:
        return lambda *args, **kwargs: special(op, args, kwargs)
    if torch.Tag.inplace_view in op.tags:
        return lambda t, *args, **kwargs: moved(op, t, args, kwargs)
    written = [i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    returns = [r.alias_info is not None and r.alias_info.is_write for r in schema.returns]
    if written and all(returns):
        return in_place(op, schema, written)

    def run(*args, **kwargs):
        key = op, key_of(args), tuple([(n, key_of(x)) for n, x in kwargs.items()])
        p = plans.get(key)
        if p is None:
            try:
                p = plans[key] = plan(op, args, kwargs)
            except (NotImplementedError, RuntimeError) as e:
                p = plans[key] = composed(op, e)
        if p is PARTS:
            return op._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
        tensors = flatten(args, [])
        if kwargs:
            flatten(list(kwargs.values()), tensors)
        out = build(p, tensors, device_in(args, kwargs))
        record(op, args, kwargs, out)
        if whole:
            of_all.add(base_of(out))
        return out

    whole = schema.name in ("aten::all", "aten::_is_all_true")
    return run


def moved(op, t, args, kwargs):
    """An operator such as transpose_, that makes a tensor another view of its storage. Nothing is recorded: each line says how its tensors lie."""
    m = torch.empty(t.untyped_storage().nbytes() // t.itemsize, dtype=t.dtype, device="meta").as_strided(t.shape, t.stride(), t.storage_offset())
    run_meta(op, (m, *args), kwargs)
    with torch._C._AutoDispatchBelowAutograd():
        SET(CPU_KEYS, t, t.untyped_storage(), m.storage_offset(), m.shape, m.stride())
    return t


of_all = set()  # addresses of storages that hold what `all` found: checks that hold


PARTS = "parts"


def composed(op, error):
    """What the meta device does not know is called as the operators that it is made of, where it is."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeExplicitAutograd"):
        return PARTS
    if isinstance(error, NotImplementedError):
        doubt(f"{op.name()} cannot be pretended: nothing tells the sizes of its results")
    raise error


def in_place(op, schema, written):
    """The kernel of an operator that writes to its arguments and returns them or nothing."""
    arguments = schema.arguments
    wanted = [arguments[i].name for i in written]
    n = len(schema.returns)

    def run(*args, **kwargs):
        held = []
        for i, name in zip(written, wanted):
            held.append(args[i] if i < len(args) else kwargs.get(name))
        shape(op, args, kwargs, held, [a.kwarg_only for a in (arguments[i] for i in written)])
        out = None if n == 0 else held[0] if n == 1 else tuple(held[:n])
        for t in flatten(held, []):
            if t.device.type == "cpu":
                t.zero_()
        record(op, args, kwargs, out)
        return out

    return run


def shape(op, args, kwargs, held, outs):
    """Gives the results of an out variant the size that they are to have, where they have another."""
    if not any(outs):
        return
    key = op, "out", key_of(args), tuple([(n, key_of(x)) for n, x in kwargs.items()])
    p = plans.get(key)
    if p is None:
        seen = []
        margs = to_meta(args, seen)
        mkwargs = {n: to_meta(x, seen) for n, x in kwargs.items()}
        run_meta(op, margs, mkwargs)
        back = {id(t): m for m, t in seen}
        p = plans[key] = [(tuple(back[id(t)].shape), back[id(t)].stride()) if isinstance(t, torch.Tensor) else None for t in held]
    for t, q in zip(held, p):
        if q and tuple(t.shape) != q[0]:
            resize(t, q[0], q[1])


def resize(t, sizes, strides=None):
    """Gives a tensor of the GPU another size, with a new storage where its own is too small."""
    if strides is None:
        strides, n = [], 1
        for s in reversed(sizes):
            strides.insert(0, n)
            n *= max(s, 1)
    extent = 0 if 0 in sizes else 1 + sum((a - 1) * b for a, b in zip(sizes, strides))
    with torch._C._AutoDispatchBelowAutograd():
        if extent * t.itemsize > t.untyped_storage().nbytes() - t.storage_offset() * t.itemsize:
            fresh = new(sizes, strides, t.dtype, t.device.index)
            SET(CPU_KEYS, t, fresh.untyped_storage(), 0, sizes, strides)
        else:
            SET(CPU_KEYS, t, t.untyped_storage(), t.storage_offset(), sizes, strides)


# Operators that are more than their shapes.

SPECIAL = {}
META_RULES = {}


def special(*names):
    def add(f):
        for n in names:
            SPECIAL[n] = f
        return f

    return add


def meta_rule(*names):
    def add(f):
        for n in names:
            META_RULES[n] = f
        return f

    return add


def asserted():
    """Whether the line that reads a value asserts it."""
    f = sys._getframe(2)
    while f is not None and f.f_code.co_filename.startswith((TORCH, THIS)):
        f = f.f_back
    return f is not None and linecache.getline(f.f_code.co_filename, f.f_lineno).lstrip().startswith("assert ")


@special("aten::_local_scalar_dense")
def item(op, args, kwargs):
    t = args[0]
    if base_of(t) in of_all:
        value = bool(answer("all", True))
    elif t.dtype is torch.bool:
        value = bool(answer("assert", True) if asserted() else answer("item", False))
    elif t.dtype.is_complex:
        value = complex(answer("item", 0))
    elif t.dtype.is_floating_point:
        value = float(answer("item", 0.0))
    else:
        value = int(answer("item", 0))
    record(op, args, kwargs, None)
    asked("item", show(value))
    return value


@special("aten::_to_copy")
def to_copy(op, args, kwargs):
    t = args[0]
    device = kwargs.get("device")
    device = t.device if device is None else torch.device(device)
    dtype = kwargs.get("dtype") or t.dtype
    if device.type == "cuda":
        index = device.index if device.index is not None else current_device()
        out = like(t, dtype, kwargs.get("memory_format"), index)
    else:
        out = torch.empty_strided(*like_of(t, kwargs.get("memory_format")), dtype=dtype, device=device)
        if device.type == "cpu":
            out.zero_()
    record(op, args, kwargs, out)
    if device.type == "cpu":
        asked("cpu", 0)
    return out


def like_of(t, memory_format):
    """Size and strides of a copy of a tensor, as empty_like has them."""
    if memory_format is None:
        memory_format = torch.preserve_format
    key = "like", tuple(t.shape), t.stride(), memory_format
    p = plans.get(key)
    if p is None:
        m = torch.empty_like(torch.empty_strided(t.shape, t.stride(), device="meta"), memory_format=memory_format)
        p = plans[key] = tuple(m.shape), m.stride()
    return p


def like(t, dtype, memory_format, index):
    sizes, strides = like_of(t, memory_format)
    return new(sizes, strides, dtype, index)


@special("aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize")
def copy(op, args, kwargs):
    to = args[0] if op._schema.name == "aten::copy_" else args[1]
    if to.device.type == "cpu":
        with torch._C._AutoDispatchBelowAutograd():
            to.zero_()
    record(op, args, kwargs, to)
    if to.device.type == "cpu":
        asked("cpu", 0)
    return to


@special("aten::as_strided")
def strided(op, args, kwargs):
    t = args[0]
    offset = args[3] if len(args) > 3 else kwargs.get("storage_offset")
    out = as_strided(t, args[1], args[2], t.storage_offset() if offset is None else offset)
    record(op, args, kwargs, out)
    return out


@special("aten::resize_")
def resize_(op, args, kwargs):
    resize(args[0], args[1])
    record(op, args, kwargs, args[0])
    return args[0]


@special("aten::set_")
def set_(op, args, kwargs):
    t = args[0]
    with torch._C._AutoDispatchBelowAutograd():
        if len(args) == 1:
            fresh = new((0,), (1,), t.dtype, t.device.index)
            SET(CPU_KEYS, t, fresh.untyped_storage(), 0, (0,), (1,))
        elif isinstance(args[1], torch.Tensor):
            s = args[1]
            if len(args) > 2:
                SET(CPU_KEYS, t, s.untyped_storage(), *args[2:])
            else:
                SET(CPU_KEYS, t, s.untyped_storage(), s.storage_offset(), s.shape, s.stride())
        else:
            s = args[1]
            rest = args[2:] or (0, (s.nbytes() // t.itemsize,), (1,))
            SET(CPU_KEYS, t, s, *rest)
    record(op, (t,), {}, t)
    return t


def sized(name, sizes_of):
    """An operator whose results' sizes are in the data."""

    def run(op, args, kwargs):
        outs, count = sizes_of(args, kwargs)
        device = device_in(args, kwargs)
        built = [new(s, dense(s), d, device) for s, d in outs]
        out = built[0] if len(op._schema.returns) == 1 else tuple(built)
        record(op, args, kwargs, out)
        asked(name, count)
        return out

    SPECIAL["aten::" + name] = run


def dense(sizes):
    out, n = [], 1
    for s in reversed(sizes):
        out.insert(0, n)
        n *= max(s, 1)
    return tuple(out)


def install_sized():
    i64 = torch.int64

    def numel(args, default=None):
        return int(answer("rows", args[0].numel() if default is None else default))

    def nonzero(args, kwargs):
        n = numel(args)
        return [((n, args[0].dim()), i64)], n

    def masked_select(args, kwargs):
        n = numel(args, math.prod(torch.broadcast_shapes(args[0].shape, args[1].shape)))
        return [((n,), args[0].dtype)], n

    def unique(args, kwargs):
        n = numel(args)
        return [((n,), args[0].dtype), (args[0].shape, i64), ((n,), i64)], n

    def unique_dim(args, kwargs):
        t, d = args[0], args[1]
        n = numel(args, t.shape[d])
        sizes = list(t.shape)
        sizes[d] = n
        return [(tuple(sizes), t.dtype), ((t.shape[d],), i64), ((n,), i64)], n

    def consecutive(args, kwargs):
        n = numel(args)
        return [((n,), args[0].dtype), (args[0].shape, i64), ((n,), i64)], n

    def bincount(args, kwargs):
        least = args[2] if len(args) > 2 else kwargs.get("minlength", 0)
        n = int(answer("rows", max(1, least)))
        weights = args[1] if len(args) > 1 else kwargs.get("weights")
        return [((n,), weights.dtype if weights is not None and weights.dtype.is_floating_point else i64)], n

    def repeat_interleave(args, kwargs):
        size = kwargs.get("output_size") or (args[1] if len(args) > 1 else None)
        n = size if size is not None else numel(args)
        return [((n,), args[0].dtype)], n

    for name, f in [("nonzero", nonzero), ("masked_select", masked_select), ("_unique2", unique), ("_unique", unique), ("unique_dim", unique_dim),
                    ("unique_consecutive", consecutive), ("bincount", bincount), ("repeat_interleave.Tensor", repeat_interleave)]:
        sized(name, f)


@meta_rule("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
def index(op, args, kwargs):
    """Masks take every element."""
    indices = []
    for i in args[1]:
        if i is not None and i.dtype in (torch.bool, torch.uint8):
            n = i.numel()
            indices += [torch.empty(n, dtype=torch.int64, device="meta") for _ in range(max(i.dim(), 1))]
        else:
            indices.append(i)
    return op(args[0], indices, *args[2:], **kwargs)


def conv_format(t, w):
    """cudnn_conv_suggest_memory_format"""
    if t.dtype is torch.float64 or w.dtype is torch.float64:
        return torch.contiguous_format
    if t.dim() == 4 and (channels_last(t, torch.channels_last) or channels_last(w, torch.channels_last)):
        return torch.channels_last
    if t.dim() == 5 and (channels_last(t, torch.channels_last_3d) or channels_last(w, torch.channels_last_3d)):
        return torch.channels_last_3d
    return torch.contiguous_format


def channels_last(t, memory_format):
    """TensorImpl's is_channels_last by strides"""
    strides, sizes = t.stride(), t.shape
    if len(sizes) not in (4, 5) or strides[1] == 0:
        return False
    least = 0
    for d in [1, *range(len(sizes) - 1, 1, -1), 0]:
        if sizes[d] == 0 or strides[d] < least:
            return False
        if d == 0 and least == strides[1]:
            return False
        least = strides[d]
        if sizes[d] > 1:
            least *= sizes[d]
    return True


@meta_rule("aten::elu_backward", "aten::hardsigmoid_backward", "aten::hardswish_backward", "aten::hardtanh_backward", "aten::logit_backward", "aten::softplus_backward",
           "aten::xlogy", "aten::special_xlog1py", "aten::floor_divide", "aten::copysign", "aten::complex", "aten::polar", "aten::pow", "aten::nan_to_num")
def iterated(op, args, kwargs):
    """Kernels of single elements, whose results lie as their operands in order say; the meta device knows some of them by other operators."""
    out = op(*args, **kwargs)
    tensors = flatten(args, [])
    like = tensors[0] + (tensors[1] if len(tensors) > 1 else 1)
    return torch.empty_strided(like.shape, like.stride(), dtype=out.dtype, device="meta")


@meta_rule("aten::mse_loss_backward", "aten::smooth_l1_loss_backward", "aten::huber_loss_backward", "aten::glu_backward", "aten::_log_softmax_backward_data")
def packed(op, args, kwargs):
    """Kernels whose result is contiguous, whatever their inputs are."""
    out = op(*args, **kwargs)
    return torch.empty(out.shape, dtype=out.dtype, device="meta")


@meta_rule("aten::native_layer_norm_backward", "aten::_fused_rms_norm_backward", "aten::native_group_norm_backward")
def norm_backward(op, args, kwargs):
    """The gradient of the input is contiguous, as the input that the kernel reads."""
    first, *others = op(*args, **kwargs)
    if "group" in op._schema.name and RELEASE >= (2, 15):  # which has kernels of channels_last
        return first, *others
    return (first if first is None else torch.empty(first.shape, dtype=first.dtype, device="meta"), *others)


@meta_rule("aten::_fused_rms_norm")
def rms_norm(op, args, kwargs):
    """The result is contiguous; for each row there is a number, in float32 for types of 16 bits."""
    t, shape = args[:2]
    kept = torch.float32 if t.dtype in (torch.float16, torch.bfloat16) else t.dtype
    rows = [*t.shape[: t.dim() - len(shape)], *[1] * len(shape)]
    return torch.empty(t.shape, dtype=t.dtype, device="meta"), torch.empty(rows, dtype=kept, device="meta")


@meta_rule("aten::binary_cross_entropy", "aten::binary_cross_entropy_backward")
def cross_entropy(op, args, kwargs):
    """The result lies as the input does."""
    out = op(*args, **kwargs)
    t = args[1] if op._schema.name.endswith("_backward") else args[0]
    return torch.empty_like(t, dtype=out.dtype) if out.dim() else out


@meta_rule("aten::log_sigmoid_forward")
def log_sigmoid(op, args, kwargs):
    """The buffer is the processor's alone."""
    return torch.empty_like(args[0]), torch.empty(0, dtype=args[0].dtype, device="meta")


@meta_rule("aten::convolution", "aten::convolution_overrideable")
def convolution(op, args, kwargs):
    names = [a.name for a in op._schema.arguments]
    call = {**dict(zip(names, args)), **kwargs}
    out = op(*args, **kwargs)
    return torch.empty(out.shape, dtype=out.dtype, device="meta", memory_format=conv_format(call["input"], call["weight"]))


@meta_rule("aten::convolution_backward")
def convolution_backward(op, args, kwargs):
    names = [a.name for a in op._schema.arguments]
    call = {**dict(zip(names, args)), **kwargs}
    g, t, w, mask = call["grad_output"], call["input"], call["weight"], call["output_mask"]
    form = conv_format(t, w)
    empty = lambda s: torch.empty(s, dtype=t.dtype, device="meta", memory_format=form if len(s) > 3 else torch.contiguous_format)
    return (empty(t.shape) if mask[0] else None, empty(w.shape) if mask[1] else None,
            torch.empty(call["bias_sizes"] or [g.shape[1]], dtype=t.dtype, device="meta") if mask[2] else None)


@special("aten::pin_memory", "aten::_pin_memory")
def pin(op, args, kwargs):
    return args[0]


@special("aten::is_pinned")
def is_pinned(op, args, kwargs):
    return False


@special("aten::record_stream")
def record_stream(op, args, kwargs):
    writer.write(["mark", "record_stream", show(args[0])])


@special("aten::binary_cross_entropy", "aten::mse_loss", "aten::smooth_l1_loss")
def loss(op, args, kwargs):
    """The sum or the mean is written into what is as large as the losses (Loss.cu, BinaryOps.cpp)."""
    a = bind(op, args, kwargs)
    t, target = a["self"], a["target"]
    sizes = tuple(torch.broadcast_shapes(t.shape, target.shape))
    like = torch.empty_like(torch.empty_strided(t.shape, t.stride(), device="meta"))  # dense where t is not
    out = new(sizes, like.stride() if sizes == tuple(t.shape) else dense(sizes), torch.result_type(t, target), t.device.index)
    if a["reduction"] != 0:
        out = as_strided(out, (), (), 0)
    record(op, [a[x.name] for x in op._schema.arguments], {}, out)
    return out


@special("aten::equal")
def equal(op, args, kwargs):
    a, b = args
    if base_of(a) == base_of(b) and (a.dtype, a.shape, a.stride(), a.storage_offset()) == (b.dtype, b.shape, b.stride(), b.storage_offset()):
        return True
    value = bool(answer("equal", False))
    record(op, args, kwargs, None)
    asked("equal", value)
    return value


# What C++ decides by how it was built: kernels above autograd that decide as the CUDA build does.


def composite(*names):
    def add(f):
        for n in names:
            COMPOSITE[n] = f
        return f

    return add


COMPOSITE = {}


def parts_of(op, args, kwargs):
    """What the operator is made of in C++."""
    return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def bind(op, args, kwargs):
    """The arguments of a call by name, with defaults."""
    out = {a.name: a.default_value for a in op._schema.arguments if a.has_default_value()}
    out.update(zip([a.name for a in op._schema.arguments], args))
    out.update(kwargs)
    return out


@composite("aten::cudnn_is_acceptable")
def cudnn_is_acceptable(op, args, kwargs):
    return acceptable(args[0])


def acceptable(t):
    return torch._C._get_cudnn_enabled() and t.is_cuda and t.dtype in (torch.float16, torch.float32, torch.float64) and t.numel() > 0


@composite("aten::_batch_norm_impl_index")
def batch_norm(op, args, kwargs):
    """Normalization.cpp"""
    t, weight, bias, mean, var, training, momentum, eps, enabled = args
    if t.numel() == 0:
        return parts_of(op, args, kwargs)
    both = (mean is None) == (var is None)
    if (bn_type(t, weight) and weight is not None and bias is not None and both and (mean is not None or training) and t.dim() >= 3
            and t.shape[0] <= (880801 if training else 65535) and eps >= 1e-5 and torch._C._get_cudnn_enabled() and t.numel() < 2**31 - 1):
        form = suggested(t)
        out = torch.ops.aten.cudnn_batch_norm(t.contiguous(memory_format=form), weight.contiguous(), bias.contiguous(),
                                              None if mean is None else mean.contiguous(), None if var is None else var.contiguous(), training, momentum, eps)
        return (*out, 1)
    reserve = torch.empty(0, dtype=torch.uint8, device=t.device)
    return (*torch.ops.aten.native_batch_norm(t, weight, bias, mean, var, training, momentum, eps), reserve, 0)


def bn_type(t, weight):
    """Types that cuDNN is asked for: _select_batch_norm_backend, from 2.6 to the main branch of 2026."""
    w = None if weight is None else weight.dtype
    return torch.bfloat16 not in (t.dtype, w) and (t.dtype is not torch.float16 or w is torch.float32)


def suggested(t):
    if t.dim() == 4 and channels_last(t, 0):
        return torch.channels_last
    if t.dim() == 5 and channels_last(t, 0):
        return torch.channels_last_3d
    return torch.contiguous_format


@composite("aten::scaled_dot_product_attention")
def attention(op, args, kwargs):
    """attention.cpp and cuda/sdp_utils.cpp"""
    a = bind(op, args, kwargs)
    q, k, v, mask, p, causal, scale = (a[n] for n in ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale"))
    aten = torch.ops.aten
    if cudnn_takes(q, k, v, mask, p, a.get("enable_gqa")):
        if mask is not None and mask.dtype is torch.bool:
            mask = float_mask(mask, q.dtype)
        return aten._scaled_dot_product_cudnn_attention(q, k, v, mask, needs_grad(q, k, v), p, causal, False, scale=scale)[0]
    flash = flash_takes(q, k, v, mask, p, causal)
    efficient = not flash and efficient_takes(q, k, v, mask, a.get("enable_gqa"))
    if not flash and not efficient:
        if mask is not None and mask.dtype is torch.bool:
            mask = float_mask(mask, q.dtype)
        gqa = {"enable_gqa": True} if a.get("enable_gqa") else {}
        return aten._scaled_dot_product_attention_math(q, k, v, mask, p, causal, None, scale=scale, **gqa)[0]
    if flash:
        size = q.shape[-1]
        s = 1 / math.sqrt(size) if scale is None else scale
        out = aten._scaled_dot_product_flash_attention(pad(q, 8), pad(k, 8), pad(v, 8), p, causal, False, scale=s)[0]
        return out[..., :size] if out.shape[-1] != size else out
    if mask is not None:
        if mask.dtype is torch.bool:
            mask = float_mask(mask, q.dtype)
        mask = efficient_mask(mask, q, k)
    grad = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    return aten._scaled_dot_product_efficient_attention(q, k, v, mask, grad, p, causal, scale=scale)[0]


def float_mask(mask, dtype):
    return torch.where(mask, 0.0, torch.scalar_tensor(-math.inf, dtype=dtype, device=mask.device))


def efficient_mask(mask, q, k):
    if not (all(n == 1 or s % 8 == 0 for n, s in zip(mask.shape[:-1], mask.stride()[:-1])) and mask.stride(-1) == 1):
        last = mask.shape[-1]
        mask = pad(mask, 8)[..., :last]
    return mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])


def pad(t, n):
    over = t.shape[-1] % n
    return torch.nn.functional.pad(t, (0, n - over)) if over else t


def cudnn_takes(q, k, v, mask, p, gqa):
    """Whether cuDNN, if it is asked first, takes the call; internal/torchver/attention.go names the changes."""
    arch, version = 10 * MAJOR + MINOR, GPU.get("cudnn", {}).get(".".join(map(str, RELEASE)), 0)
    if CUDA_BUILD:
        version = torch.backends.cudnn.version() or 0
    least = 90900 if RELEASE == (2, 9) else 91501
    if RELEASE < (2, 9) or version < least or arch not in ((90, 100, 103) if RELEASE >= (2, 11) else (90, 100)):
        return False
    if not torch._C._get_cudnn_sdp_enabled() or not q.dim() == k.dim() == v.dim() == 4 or torch.are_deterministic_algorithms_enabled():
        return False
    d, e, grad = q.shape[-1], v.shape[-1], needs_grad(q, k, v)
    limit, own = 128, (d, e) == (192, 128)
    if RELEASE >= (2, 14):
        limit = 256 if version > 92200 else 192 if own and version >= 91100 else 128
        if limit == 256 and grad and max(d, e) > 128 and not own and (d, e) != (256, 256):
            return False
    elif arch == 90 and version >= 91000:
        limit = 256
    elif RELEASE >= (2, 11) and arch // 10 == 10 and version >= 91100 and own:
        limit = 192
    if p and (91100 < version < 91400 or RELEASE >= (2, 12) and p * 16 != int(p * 16)):
        return False
    heads = (q.shape[1], k.shape[1], v.shape[1])
    grouped = gqa and heads[1] and heads[1] == heads[2] and heads[0] % heads[1] == 0 or RELEASE >= (2, 14) and heads[1:] == (1, 1)
    if mask is not None and (mask.requires_grad or mask.dim() not in (2, 4) or any(n not in (1, m) for n, m in zip(
            reversed(mask.shape), (k.shape[2], q.shape[2], q.shape[1], q.shape[0])))):
        return False
    return (q.dtype in HALF and q.dtype is k.dtype is v.dtype and d == k.shape[-1] and max(d, e) <= limit and d % 8 == e % 8 == 0
            and q.shape[0] == k.shape[0] == v.shape[0] and (heads[0] == heads[1] == heads[2] or bool(grouped))
            and (RELEASE < (2, 13) or max(q.shape[0], q.shape[1]) <= 65535) and k.shape[2] != 1 and not (q.shape[2] == 1 and p)
            and 0 not in (q.shape[2], k.shape[2], v.shape[2]) and q.stride(-1) == k.stride(-1) == v.stride(-1) == 1)


def flash_takes(q, k, v, mask, p, causal):
    d = q.shape[-1]
    newest = 9 if RELEASE < (2, 7) else 12
    return (torch._C._get_flash_sdp_enabled() and q.dim() == k.dim() == v.dim() == 4 and mask is None and d == k.shape[-1] == v.shape[-1] and d <= 256
            and 8 <= MAJOR <= newest and (MAJOR < 9 or MAJOR > 9 or MINOR == 0)
            and not (needs_grad(q, k, v) and 10 * MAJOR + MINOR in (86, 87, 88, 89, 120, 121) and (192 < d <= 224 or d > 224 and p > 0))
            and not (causal and q.shape[-2] != k.shape[-2]) and q.dtype in HALF and q.dtype is k.dtype is v.dtype
            and q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1] == v.shape[1] and k.shape[1] and q.shape[1] % k.shape[1] == 0
            and 0 not in (q.shape[2], k.shape[2], v.shape[2]) and (d == 1 or q.stride(-1) == k.stride(-1) == v.stride(-1) == 1))


def needs_grad(*ts):
    return torch.is_grad_enabled() and any(t.requires_grad for t in ts)


def efficient_takes(q, k, v, mask, gqa=False):
    half = q.dtype in HALF
    least = 4 if MAJOR >= 8 else 1
    if MAJOR >= 8 or MAJOR == 7 and half:
        least = max(least, 128 // (16 if half else 32))
    types = (torch.float16, torch.float32, torch.bfloat16) if MAJOR >= 8 else (torch.float16, torch.float32)
    d, e = q.shape[-1], v.shape[-1]
    heads = q.shape[1] == k.shape[1] == v.shape[1]
    if RELEASE >= (2, 14) and q.dim() == k.dim() == 4 and k.shape[1] == v.shape[1] and k.shape[1]:
        heads = heads or k.shape[1] == 1 or bool(gqa) and q.shape[1] % k.shape[1] == 0
    if RELEASE >= (2, 13) and MAJOR >= 8 and any(t.storage_offset() % least for t in (q, k, v)):
        return False
    return (torch._C._get_mem_efficient_sdp_enabled() and q.dim() == k.dim() == v.dim() == 4 and d == k.shape[-1] and d % least == e % least == 0 and d and e
            and (RELEASE >= (2, 7) or MAJOR < 9 or MAJOR == 9 and MINOR == 0) and q.dtype in types and q.dtype is k.dtype is v.dtype
            and q.shape[0] == k.shape[0] == v.shape[0] and heads
            and 0 not in (q.shape[2], k.shape[2], v.shape[2]) and q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
            and (mask is None or mask.stride(-1) == 1))


@meta_rule("aten::_scaled_dot_product_flash_attention")
def flash_meta(op, args, kwargs):
    q, k = args[0], args[1]
    out = torch.empty_like(q.transpose(1, 2)).transpose(1, 2)
    n, h, l, d = q.shape
    empty = lambda sizes, dtype: torch.empty(sizes, dtype=dtype, device="meta")
    state = (empty((2,), torch.uint64), empty((), torch.uint64)) if RELEASE >= (2, 7) else (host_number(), host_number())
    return (out, empty((n, h, l), torch.float32), None, None, l, k.shape[2], *state, empty((0,), q.dtype))


@meta_rule("aten::_scaled_dot_product_cudnn_attention")
def cudnn_meta(op, args, kwargs):
    """The statistics of the softmax are there if they are asked for."""
    outs = list(op(*args, **kwargs))
    if not bind(op, args, kwargs)["compute_log_sumexp"]:
        outs[1] = torch.empty(0, dtype=torch.float32, device="meta")
    return tuple(outs)


@meta_rule("aten::_scaled_dot_product_efficient_attention")
def efficient_meta(op, args, kwargs):
    q, k, v, mask, grad = args[:5]
    n, h, l, d = q.shape
    empty = lambda sizes, dtype: torch.empty(sizes, dtype=dtype, device="meta")
    return (empty((n, l, h, v.shape[-1]), q.dtype).transpose(1, 2), empty((n, h, (l + 31) // 32 * 32 if grad else 0), torch.float32),
            host_number(), host_number())


def host_number():
    """The seed and the offset of random numbers are on the CPU, but in a graph's capture."""
    return torch.empty((), dtype=torch.int64)


@meta_rule("aten::_transformer_encoder_layer_fwd")
def encoder_layer(op, args, kwargs):
    return torch.empty(args[0].shape, dtype=args[0].dtype, device="meta")


@meta_rule("aten::_native_multi_head_attention")
def native_attention(op, args, kwargs):
    a = bind(op, args, kwargs)
    q, k = a["query"], a["key"]
    heads = () if a["average_attn_weights"] else (a["num_head"],)
    weights = torch.empty((q.shape[0], *heads, q.shape[1], k.shape[1]), dtype=q.dtype, device="meta") if a["need_weights"] else torch.empty(0, dtype=q.dtype, device="meta")
    return torch.empty(q.shape, dtype=q.dtype, device="meta"), weights


@meta_rule("aten::_thnn_fused_lstm_cell")
def lstm_cell(op, args, kwargs):
    """RNN.cu"""
    gates, cx = args[0], args[2]
    like = lambda t: torch.empty(t.shape, dtype=t.dtype, device="meta")
    return like(cx), like(cx), like(gates)


@meta_rule("aten::_thnn_fused_gru_cell")
def gru_cell(op, args, kwargs):
    hx = args[2]
    return torch.empty(hx.shape, dtype=hx.dtype, device="meta"), torch.empty((hx.shape[0], 5 * hx.shape[1]), dtype=hx.dtype, device="meta")


@meta_rule("aten::_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(op, args, kwargs):
    grad_hy, grad_cy, cx, cy, workspace, has_bias = args
    gates = torch.empty(workspace.shape, dtype=workspace.dtype, device="meta")
    bias = torch.empty(workspace.shape[1:], dtype=workspace.dtype, device="meta") if has_bias else None
    return gates, torch.empty(cx.shape, dtype=cx.dtype, device="meta"), bias


@meta_rule("aten::_thnn_fused_gru_cell_backward")
def gru_cell_backward(op, args, kwargs):
    grad, workspace, has_bias = args
    n, width = grad.shape
    empty = lambda *s: torch.empty(s, dtype=workspace.dtype, device="meta")
    gates = [empty(n, 3 * width), empty(n, 3 * width)]
    return *gates, empty(n, width), *([empty(3 * width), empty(3 * width)] if has_bias else [None, None])


@meta_rule("aten::native_batch_norm_backward", "aten::cudnn_batch_norm_backward")
def batch_norm_backward(op, args, kwargs):
    outs = op(*args, **kwargs)
    a = bind(op, args, kwargs)
    mask = a.get("output_mask")
    if mask is None:
        return outs
    if (a["train"] or mask[1] or mask[2]) and a["weight"] is not None and all(one_by_one(a[n]) for n in ("input", "grad_out")):
        outs = outs[0], torch.empty_like(a["weight"]), torch.empty_like(a["weight"])  # the kernels of channels_last compute them together
        mask = mask[0], True, True
    return tuple(o if m else None for o, m in zip(outs, mask))


def one_by_one(t):
    """batch_norm_use_channels_last_kernels: the channels of a pixel lie side by side."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(t.dim())
    return last is not None and t.is_contiguous(memory_format=last) or t.is_contiguous() and t.stride(1) == 1


@meta_rule("aten::_ctc_loss_backward")
def ctc_loss_backward(op, args, kwargs):
    return torch.empty(args[1].shape, dtype=args[1].dtype, device="meta")


@composite("aten::grid_sampler")
def grid_sampler(op, args, kwargs):
    t, grid, mode, padding, corners = args
    if acceptable(t) and acceptable(grid) and t.dim() == 4 and t.shape[1] <= 1024 and mode == padding == 0 and corners and t.numel() < 2**31:
        return torch.ops.aten.cudnn_grid_sampler(t, grid)
    return parts_of(op, args, kwargs)


MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
GATES = {0: 1, 1: 1, 2: 4, 3: 3}


@composite("aten::lstm.input", "aten::lstm.data", "aten::gru.input", "aten::gru.data", "aten::rnn_tanh.input", "aten::rnn_tanh.data", "aten::rnn_relu.input",
           "aten::rnn_relu.data")
def recurrent(op, args, kwargs):
    """cudnn/RNN.cpp"""
    a = bind(op, args, kwargs)
    packed = op._schema.overload_name == "data"
    t = a["data"] if packed else a["input"]
    if not acceptable(t):
        return parts_of(op, args, kwargs)
    mode = MODES[op._schema.name[6:]]
    hx, cx = a["hx"] if mode == 2 else (a["hx"], None)
    params = a["params"]
    hidden, proj = hx.shape[2], 0
    if cx is not None and cx.shape[2] != hx.shape[2]:
        hidden, proj = cx.shape[2], hx.shape[2]
    buffer = weight_buffer(params, rnn_numel(mode, t.shape[-1], hidden, proj, a["num_layers"], a["bidirectional"]))
    state = dropout_state(t.device, a["dropout"]) if a["dropout"] and a["train"] else None
    stride = (4 if a["has_biases"] else 2) + (proj != 0)
    out = torch.ops.aten._cudnn_rnn(t, params, stride, buffer, hx, cx, mode, hidden, proj, a["num_layers"], not packed and a["batch_first"],
                                    a["dropout"], a["train"], a["bidirectional"], a["batch_sizes"].tolist() if packed else [], state)
    return out[:3] if mode == 2 else out[:2]


def rnn_numel(mode, size, hidden, proj, layers, both):
    """The elements of cuDNN's buffer of weights, which has biases in any case."""
    g, directions, n, of = GATES[mode], 2 if both else 1, 0, proj or hidden
    for layer in range(layers):
        ins = size if layer == 0 else of * directions
        n += directions * (g * hidden * (ins + of) + 2 * g * hidden + (proj * hidden if proj else 0))
    return n


def weight_buffer(params, numel):
    """The buffer that the weights lie in, or None if they do not lie in one."""
    first = params[0]
    size = first.untyped_storage().nbytes() // first.itemsize
    if size < numel or any(base_of(p) != base_of(first) for p in params):
        return None
    with torch.no_grad():
        return torch.empty(0, dtype=first.dtype, device=first.device).set_(first.untyped_storage())


states = {}


reseeded = [False]


def reseed(*args, **kwargs):
    """The state of the device's random numbers is set, or its seed: cuDNN's RNN makes its own again."""
    reseeded[0] = True


def dropout_state(device, p):
    if device not in states or reseeded[0]:
        with torch.no_grad():
            torch.empty((), dtype=torch.int64, device=device).random_().item()  # the seed
        reseeded[0] = False
        states[device] = torch.ops.aten._cudnn_init_dropout_state(p, True, 0, dtype=torch.uint8, device=device)
    return states[device]


@special("aten::_cudnn_init_dropout_state")
def init_dropout_state(op, args, kwargs):
    threads = 1536 if (MAJOR, MINOR) in ((8, 6), (8, 9), (12, 0)) else 2048
    out = new((GPU["sms"] * threads * 48,), (1,), torch.uint8, current_device())
    record(op, args, kwargs, out)
    return out


@special("aten::_cudnn_rnn_flatten_weight")
def flatten_weight(op, args, kwargs):
    """Copies weights into one buffer and makes them views of it."""
    a = bind(op, args, kwargs)
    weights, size, mode, hidden, proj = a["weight_arr"], a["input_size"], a["mode"], a["hidden_size"], a["proj_size"]
    n = rnn_numel(mode, size, hidden, proj, a["num_layers"], a["bidirectional"])
    out = new((n,), (1,), weights[0].dtype, weights[0].device.index)
    record(op, args, kwargs, out)
    at = 0
    for w in weights:
        with torch._C._AutoDispatchBelowAutograd():
            SET(CPU_KEYS, w, out.untyped_storage(), at, tuple(w.shape), dense(w.shape))
        at += w.numel()
    return out


@special("aten::_cudnn_rnn")
def cudnn_rnn(op, args, kwargs):
    if autocast() and not CUDA_BUILD:
        doubt("under autocast the CUDA build converts the weights of recurrent layers to float16, which a PyTorch for CPUs does not")
    a = bind(op, args, kwargs)
    t, hx, cx, hidden, proj = a["input"], a["hx"], a["cx"], a["hidden_size"], a["proj_size"]
    directions = 2 if a["bidirectional"] else 1
    of = (proj or hidden) * directions
    device = t.device.index
    buffer = a["weight_buf"]
    if buffer is None:
        fresh = rnn_numel(a["mode"], t.shape[-1], hidden, proj, a["num_layers"], a["bidirectional"])
        buffer = new((fresh,), (1,), a["weight"][0].dtype, device)
        weights = buffer
    else:
        weights = as_strided(buffer, buffer.shape, buffer.stride(), 0)
    sizes = (t.shape[0], of) if a["batch_sizes"] else (t.shape[0], t.shape[1], of)
    if not a["batch_sizes"] and a["batch_first"]:
        base = new((t.shape[1], t.shape[0], of), dense((t.shape[1], t.shape[0], of)), t.dtype, device)
        y = as_strided(base, sizes, (of, of * t.shape[0], 1), 0)
    else:
        y = new(sizes, dense(sizes), t.dtype, device)
    hy = new(hx.shape, dense(hx.shape), hx.dtype, device)
    cy = new(cx.shape, dense(cx.shape), cx.dtype, device) if cx is not None else new((0,), (1,), hx.dtype, device)
    reserve = new((0,), (1,), torch.uint8, device)
    out = y, hy, cy, reserve, weights
    record(op, args, kwargs, out)
    return out


@special("aten::_cudnn_rnn_backward")
def cudnn_rnn_backward(op, args, kwargs):
    a = bind(op, args, kwargs)
    t, hx, cx, mask = a["input"], a["hx"], a["cx"], a["output_mask"]
    device = t.device.index
    like = lambda x: new(x.shape, dense(x.shape), x.dtype, device)
    if a["batch_first"] and not a["batch_sizes"]:  # cuDNN's layout has the time first
        n, l, size = t.shape
        dx = as_strided(new((l, n, size), dense((l, n, size)), t.dtype, device), (n, l, size), (size, n * size, 1), 0)
    else:
        dx = like(t)
    dhx = like(hx)
    dcx = like(cx) if cx is not None else None
    dw = []
    biases = a["weight_stride0"] >= 4
    if mask[3]:
        flat = new(a["weight_buf"].shape, (1,), a["weight_buf"].dtype, device) if biases else None
        at = 0
        for w in a["weight"]:
            dw.append(as_strided(flat, w.shape, dense(w.shape), at) if biases else like(w))  # without biases they are copied out of the buffer
            at += w.numel()
        del flat
    out = dx, dhx, dcx, dw
    record(op, args, kwargs, out)
    return out


@special("aten::_use_miopen_ctc_loss")
def use_miopen_ctc_loss(op, args, kwargs):
    return False


@special("aten::_use_cudnn_ctc_loss")
def use_cudnn_ctc_loss(op, args, kwargs):
    """LossCTC.cpp"""
    probs, targets, lengths, target_lengths, blank = args[:5]
    if not torch._C._get_cudnn_enabled() or blank != 0 or targets.dim() != 1 or probs.dtype is not torch.float32 or targets.dtype is not torch.int32:
        return False
    if targets.is_cuda or not probs.is_cuda or probs.dim() != 3 or not isinstance(lengths, (list, tuple)):
        return False
    return all(n == probs.shape[0] for n in lengths) and all(n <= 256 and n <= m for n, m in zip(target_lengths, lengths))


# ---- Python's side of the GPU ----------------------------------------------------------------------------------------------------------------------


def install(module):
    """Makes a GPU of the torch that was just imported."""
    global torch, HALF, RELEASE, META, CPU_KEYS, AS_STRIDED, VIEW_DTYPE, SET, DTYPES, CUDA_BUILD, TORCH
    torch = module
    TORCH = os.path.realpath(os.path.dirname(torch.__file__)) + os.sep
    CUDA_BUILD = torch.backends.cuda.is_built()
    META = torch.device("meta")
    CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    AS_STRIDED = torch.ops.aten.as_strided.default.redispatch
    VIEW_DTYPE = torch.ops.aten.view.dtype.redispatch
    SET = torch.ops.aten.set_.source_Storage_storage_offset.redispatch
    DTYPES = {torch.int8: (0, 8), torch.int16: (0, 16), torch.int32: (0, 32), torch.int64: (0, 64), torch.uint8: (1, 8), torch.float16: (2, 16),
              torch.float32: (2, 32), torch.float64: (2, 64), torch.bfloat16: (4, 16), torch.complex64: (5, 64), torch.complex128: (5, 128), torch.bool: (6, 8)}
    HALF = (torch.float16, torch.bfloat16)
    RELEASE = tuple(int("".join(c for c in n if c.isdigit()) or 0) for n in torch.__version__.split("+")[0].split(".")[:2])
    if RELEASE < (2, 6):
        refuse(f"PyTorch 2.6 or later is needed, and this is {torch.__version__}")
    try:
        install_deleter()
        install_guard()
        install_accelerator()
        install_sized()
        install_cuda()
        install_kernels()
        install_extensions()
        wrong = try_out()
    except (OSError, AttributeError, ValueError, IndexError) as e:
        wrong = f"{type(e).__name__}: {e}"
    if wrong:
        refuse(f"no GPU can be pretended with PyTorch {torch.__version__} on {platform.system()} {platform.machine()}: {wrong}\n"
               "A PyTorch for Linux, 2.6 or later, is needed, of pytorch.org or of Debian; on a machine with a GPU, memplan record --real asks nothing of it")
    install_triton()
    install_training()
    install_exit()


def refuse(text):
    """Ends the script before it starts."""
    sys.stderr.write(f"memplan record: {text}\n")
    sys.stderr.flush()
    os._exit(1)


# In C++, objects of PyTorch are given tables of virtual functions with some of our own. What is where in them differs from release to release; it is found
# here, and what was made of it is tried before the script starts (try_out).


def loaded(name):
    """A library of PyTorch that is loaded."""
    with open("/proc/self/maps") as f:
        for line in f:
            path = line.rstrip("\n").split(None, 5)[5:]
            if path and os.path.basename(path[0]).startswith(name + ".so"):
                return ctypes.CDLL(path[0])
    raise OSError(f"{name}.so is not loaded: PyTorch is not built as its packages for Linux are")


def functions(this, n):
    """The first n virtual functions of an object."""
    return (ctypes.c_void_p * n)(*ctypes.cast(this, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0][:n])


def callback(f, result, *args):
    c = ctypes.CFUNCTYPE(result, ctypes.c_void_p, *args)(f)
    keep.append(c)
    return ctypes.cast(c, ctypes.c_void_p).value


def install_guard():
    """The device guard of CUDA in C++: that of the meta device, which does nothing, under CUDA's name.

    DeviceGuardImplInterface.h begins alike in 2.6 and in 2.14: type, exchangeDevice, getDevice, setDevice, uncheckedSetDevice, getStream, getDefaultStream."""
    registry = (ctypes.c_void_p * 21).in_dll(loaded("libc10"), "_ZN3c104impl26device_guard_impl_registryE")
    table = functions(registry[14], 32)
    table[0] = callback(lambda this: 1, ctypes.c_int8)
    table[1] = table[2] = callback(lambda this: 1 | current_device() << 8, ctypes.c_uint16)
    table[6] = table[5] = default_stream() or table[5]
    guard = (ctypes.c_void_p * 8)(ctypes.addressof(table))
    keep.extend([table, guard])
    registry[1] = ctypes.addressof(guard)


def machine_code(code):
    """The address of a function that Python has no words for, or None on machines for which it is not written."""
    if code is None:
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except (OSError, AttributeError, TypeError):
        return None
    page.write(code)
    keep.append(page)
    return ctypes.addressof(ctypes.c_char.from_buffer(page))


def default_stream():
    """Returns the default stream of the device that it is given: ctypes has no callbacks that return 16 bytes."""
    code = {"x86_64": "0fb7c631d2c3", "aarch64": "003c4092010080d2c0035fd6"}.get(platform.machine())
    return machine_code(code and bytes.fromhex(code))


def install_deleter():
    """Storages die while exceptions are on their way, which a callback of ctypes would lose: PyErr_Fetch and PyErr_Restore are called around it."""
    global deleter
    if platform.machine() != "x86_64":
        return
    call = lambda f: b"\x48\xb8" + ctypes.cast(f, ctypes.c_void_p).value.to_bytes(8, "little") + b"\xff\xd0"  # movabs rax, f; call rax
    python = ctypes.pythonapi
    code = bytes.fromhex("53 4883ec20 4889fb") + call(python.PyGILState_Ensure) + bytes.fromhex("89442418")
    code += bytes.fromhex("488d3c24 488d742408 488d542410") + call(python.PyErr_Fetch)
    code += bytes.fromhex("4889df") + call(died)
    code += bytes.fromhex("488b3c24 488b742408 488b542410") + call(python.PyErr_Restore)
    code += bytes.fromhex("8b7c2418") + call(python.PyGILState_Release) + bytes.fromhex("4883c420 5b c3")
    address = machine_code(code)
    if address:
        deleter = Deleter(address)


def install_accelerator():
    """Makes C++ say that the accelerator is CUDA, where the autograd engine asks for that, and `.to(0)`: the hooks of CUDA with methods that say yes."""
    cpu = loaded("libtorch_cpu")
    engine = hasattr(cpu, "_ZN2at11accelerator14getAcceleratorEb")  # releases whose autograd engine asks
    accelerator = cpu._ZN2at11accelerator14getAcceleratorEb if engine else cpu._ZN2at14getAcceleratorEb
    accelerator.restype, accelerator.argtypes = ctypes.c_uint16, [ctypes.c_bool]
    hooks = cpu._ZN2at6detail12getCUDAHooksEv
    hooks.restype, hooks.argtypes = ctypes.c_void_p, []
    this = ctypes.cast(hooks(), ctypes.POINTER(ctypes.c_void_p))
    table = functions(this, 64)
    calls = []
    noting = (ctypes.c_void_p * 64)(*[callback(lambda this, i=i: calls.append(i) or False, ctypes.c_bool) for i in range(64)])
    this[0] = ctypes.addressof(noting)
    accelerator(False)
    decides, primary = calls[0], primary_context(cpu)
    yes = callback(lambda this: True, ctypes.c_bool)
    table[decides] = yes  # hasCUDA in 2.6, later isBuilt
    if primary is None:
        primary = decides + 2 if engine else 2
    if not engine:
        table[primary] = callback(lambda this, device: False, ctypes.c_bool, ctypes.c_int8)  # the engine has no streams to keep
    else:
        table[primary] = yes
        if primary > decides + 1:
            table[decides + 1] = yes  # isAvailable
    keep.append(table)
    this[0] = ctypes.addressof(table)


def primary_context(cpu):
    """Where hasPrimaryContext is in the tables of hooks: of the methods that each kind of accelerator must have its own of, the first behind the two destructors."""
    tables = []
    for name in ("CUDA", "HPU", "XPU", "HIP"):
        try:
            tables.append(list((ctypes.c_void_p * 16).in_dll(cpu, f"_ZTVN2at{len(name) + 14}{name}HooksInterfaceE"))[2:])  # behind an offset and the type
        except ValueError:
            continue
    if len(tables) < 3:
        return None
    return next((i for i in range(2, 14) if len({t[i] for t in tables}) == len(tables)), None)


def try_out():
    """Tries the GPU in a child process, which may crash: what is wrong with it, or None."""
    if os.path.exists(CLAIM):
        return None
    m = torch.empty((2, 2), device="meta")
    torch.addmm(m, m, torch.empty_like(m))  # imports what the child would import for itself
    out, into = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, such as NumPy's
        child = os.fork()
    if child == 0:
        text = "?"
        try:
            for fd in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
            tried()
            text = ""
        except BaseException as e:
            text = f"{type(e).__name__}: {e}"
        finally:
            os.write(into, text.split("\n")[0].encode()[:500] or b"ok")
            os._exit(0)
    os.close(into)
    answered = select.select([out], [], [], 60)[0]
    text = os.read(out, 1000).decode(errors="replace") if answered else "ok"
    os.close(out)
    if not answered:  # a child that hangs says nothing of the GPU
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if answered and os.WIFSIGNALED(status):
        return f"it crashes ({signal.Signals(os.WTERMSIG(status)).name})"
    return None if text == "ok" else text


def tried():
    """A step of training on the GPU, and what it leaves."""
    with torch.enable_grad():
        model = torch.nn.Linear(2, 2).to(0)
        torch.nn.functional.mse_loss(model(torch.ones(2, 2).cuda()), torch.zeros(2, 2, device="cuda")).backward()
    if not all(p.grad.device == torch.device("cuda", 0) for p in model.parameters()):
        raise RuntimeError("gradients are not on the GPU")
    with torch.no_grad():
        for p in model.parameters():
            p -= p.grad
    del model, p
    if sum(used.values()):
        raise RuntimeError(f"{sum(used.values())} bytes are not given back")


keep = []


def install_kernels():
    library = torch.library.Library("aten", "IMPL")
    keep.append(library)
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that are overridden
        register(library, has)
        refuse_sparse(library, has)


def refuse_sparse(library, has):
    """Sparse tensors have kernels of their own, which in a build with CUDA would run."""
    def no(op, *args, **kwargs):
        text = f"a sparse tensor on the GPU is not pretended ({op.name()})"
        doubt(text)
        raise NotImplementedError(f"memplan record: {text}")

    rest = torch.library.Library("_", "IMPL")
    keep.append(rest)
    for key in ("SparseCUDA", "SparseCsrCUDA"):
        if hasattr(rest, "fallback"):
            rest.fallback(no, key)
        for name in torch._C._dispatch_get_all_op_names():
            if name.startswith("aten::") and has(name, key):
                packet, _, overload = name[6:].partition(".")
                op = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
                if op is not None:
                    library.m.impl(name, key, lambda *args, op=op, **kwargs: no(op))


# Operators that CUDA has kernels for beside what they are made of.
BESIDE = {"aten::silu_backward", "aten::mish_backward", "aten::_fused_rms_norm"}


def register(library, has):
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::") or has(name, "CompositeImplicitAutograd") and name not in BESIDE or name in ("aten::detach", "aten::alias"):
            continue  # these two make a view in C++ as they are, on any device
        packet, _, overload = name[6:].partition(".")
        try:
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        except (AttributeError, RuntimeError):
            continue
        library.m.impl(name, "CUDA", lazy(op))
    for name, f in COMPOSITE.items():
        packet, _, overload = name[6:].partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        for key in ("AutogradCUDA", "CUDA"):
            library.m.impl(name, key, lambda *args, op=op, f=f, **kwargs: f(op, args, kwargs))


def install_extensions():
    """Operators of other libraries: their kernels for CUDA would read memory that is not there, so that their fakes tell what they return."""
    rest = torch.library.Library("_", "IMPL")
    keep.append(rest)
    kernels = {}

    def unknown(op, *args, **kwargs):
        if op not in kernels:
            kernels[op] = kernel(op)
        return kernels[op](*args, **kwargs)

    if hasattr(rest, "fallback"):
        rest.fallback(unknown, "CUDA")
    impl = torch.library.Library.impl

    def pretended(self, op_name, fn, dispatch_key="", **kwargs):
        key = dispatch_key or self.dispatch_key
        if callable(fn) and key in ("CUDA", "CompositeExplicitAutograd") and not getattr(fn, "__module__", "torch.").startswith("torch.") or is_custom(fn) and key in (
                "CUDA", "CompositeExplicitAutograd"):
            name = op_name if isinstance(op_name, str) else op_name._schema.name.split("::")[1]
            packet, _, overload = name.split("::")[-1].partition(".")

            def late(*args, **kwargs):
                return unknown(getattr(getattr(getattr(torch.ops, self.ns), packet), overload or "default"), *args, **kwargs)

            if key == "CUDA":
                fn = late
            else:
                impl(self, op_name, late, "CUDA")
        return impl(self, op_name, fn, dispatch_key, **kwargs)

    torch.library.Library.impl = pretended


def is_custom(fn):
    """A kernel that torch.library.custom_op made of a function."""
    return getattr(fn, "__qualname__", "").startswith("CustomOpDef.")


def launched(f, tuned=False):
    """Triton's kernels write to tensors that there are, and do nothing here."""
    code = getattr(f, "__code__", None)
    at = f" ({short(code.co_filename)}:{code.co_firstlineno})" if code else ""
    doubt(f"Triton's kernel {getattr(f, '__name__', f)}{at} is not run{', nor tuned, which takes memory for a moment' if tuned else ''}")


class Kernel:
    """A function that Triton would compile."""

    def __init__(self, f, tuned=False):
        self.f, self.tuned = f, tuned

    def __getitem__(self, grid):
        return self.run

    def run(self, *args, **kwargs):
        launched(self.f, self.tuned)

    warmup = run


class Word:
    """What kernels are written in."""

    def __call__(self, *args, **kwargs):
        return self

    __getattr__ = __getitem__ = lambda self, name: self


class Triton:
    """Stands for Triton where it is not installed, for libraries whose kernels are written in it; PyTorch is not to find it."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "triton":
            return None
        f = sys._getframe(1)
        while f is not None and f.f_code.co_filename.startswith("<frozen importlib"):
            f = f.f_back
        by = f.f_globals.get("__name__", "") if f is not None else "torch"
        if by.partition(".")[0] == "torch" or by == "importlib.util":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        if module.__name__ != "triton":
            module.__getattr__ = lambda name: Word() if not name.startswith("__") else missing(name)
            return
        module.__version__ = "3.2.0"
        module.jit = lambda f=None, **kwargs: Kernel(f) if f is not None else Kernel
        module.autotune = lambda *args, **kwargs: lambda kernel: Kernel(kernel.f, True)
        module.heuristics = lambda *args, **kwargs: lambda kernel: kernel
        module.cdiv = lambda a, b: -(-a // b)
        module.next_power_of_2 = lambda n: 1 << (n - 1).bit_length()
        module.__getattr__ = lambda name: Word() if not name.startswith("__") else missing(name)


def missing(name):
    raise AttributeError(name)


def install_triton():
    def jit(module):
        module.JITFunction.run = lambda self, *args, **kwargs: launched(self.fn)

    def autotuner(module):
        module.Autotuner.run = lambda self, *args, **kwargs: launched(getattr(self, "base_fn", self.fn), True)

    for name, f in {"triton.runtime.jit": jit, "triton.runtime.autotuner": autotuner}.items():
        if name in sys.modules:
            f(sys.modules[name])
        else:
            sys.meta_path.insert(0, Finder(name, f))
    if "triton" not in sys.modules and importlib.util.find_spec("triton") is None:
        importlib.import_module("torch.utils._triton").has_triton_package()  # which remembers what it found
        sys.meta_path.append(Triton())


def lazy(op):
    made = []

    def run(*args, **kwargs):
        if not made:
            made.append(kernel(op))
        return made[0](*args, **kwargs)

    return run


class TensorType(type):
    """The legacy types of tensors, such as torch.cuda.FloatTensor."""

    def __instancecheck__(cls, x):
        return isinstance(x, torch.Tensor) and x.is_cuda and (cls.dtype is None or x.dtype is cls.dtype)

    def __call__(cls, *args, device=None):
        dtype = cls.dtype or torch.get_default_dtype()
        if not args:
            return torch.empty(0, dtype=dtype, device="cuda")
        if all(isinstance(a, int) for a in args) or len(args) == 1 and isinstance(args[0], torch.Size):
            return torch.empty(args[0] if isinstance(args[0], torch.Size) else args, dtype=dtype, device="cuda")
        return torch.as_tensor(args[0], dtype=dtype, device="cuda") if isinstance(args[0], torch.Tensor) else torch.tensor(args[0], dtype=dtype, device="cuda")


def tensor_types():
    types_by_name = {}
    for name, dtype in {"Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16, "Byte": torch.uint8,
                        "Char": torch.int8, "Short": torch.int16, "Int": torch.int32, "Long": torch.int64, "Bool": torch.bool, "": None}.items():
        t = TensorType(name + "Tensor", (), {"dtype": dtype, "is_cuda": True, "__module__": "torch.cuda"})
        setattr(torch.cuda, name + "Tensor", t)
        types_by_name[f"torch.cuda.{name}Tensor"] = t
    original = torch.Tensor.type

    def type_(self, dtype=None, non_blocking=False, **kwargs):
        t = types_by_name.get(dtype) if isinstance(dtype, str) else dtype
        if isinstance(t, TensorType):
            return self.to(device="cuda", dtype=t.dtype or self.dtype, non_blocking=non_blocking)
        return original(self, dtype, non_blocking, **kwargs) if dtype is not None else original(self)

    torch.Tensor.type = type_
    default = torch.set_default_tensor_type

    def set_default_tensor_type(t):
        t = types_by_name.get(t, t) if isinstance(t, str) else t
        if isinstance(t, TensorType):
            torch.set_default_device("cuda")
            torch.set_default_dtype(t.dtype)
        else:
            default(t)

    torch.set_default_tensor_type = set_default_tensor_type


def put(value, name, place, *others):
    """Replaces a function of a module, and in those modules that have it too."""
    if isinstance(value, types.FunctionType):  # one for each name, as torch._dynamo's tables want it
        value = types.FunctionType(value.__code__, globals(), name, value.__defaults__, value.__closure__)
    setattr(place, name, value)
    for module in others:
        if hasattr(module, name):
            setattr(module, name, value)


def install_cuda():
    cuda = torch.cuda

    def nothing(*args, **kwargs):
        return None

    class Properties:
        name, major, minor, total_memory, multi_processor_count = GPU["name"], MAJOR, MINOR, GPU["memory"], GPU["sms"]
        is_integrated = is_multi_gpu_board = 0
        max_threads_per_multi_processor = 1536 if (MAJOR, MINOR) in ((8, 6), (8, 9), (12, 0)) else 2048
        warp_size = 32
        regs_per_multiprocessor = 65536
        shared_memory_per_block, shared_memory_per_block_optin, shared_memory_per_multiprocessor = 49152, 232448, 233472
        L2_cache_size = 50 << 20
        gcnArchName = ""
        uuid = "00000000-0000-0000-0000-000000000000"

        def __repr__(self):
            return f"_CudaDeviceProperties(name='{self.name}', major={MAJOR}, minor={MINOR}, total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count})"

    @functools.lru_cache(None)
    def is_bf16_supported(including_emulation=True):
        """Emulation is tried on the GPU, once."""
        if MAJOR < 8 and including_emulation:
            torch.tensor([1.0], dtype=torch.bfloat16, device="cuda")
        return MAJOR >= 8 or including_emulation

    def index_of(device=None):
        if device is None:
            return current_device()
        if isinstance(device, int):
            return current_device() if device < 0 else device
        i = torch.device(device).index
        return current_device() if i is None else i

    def set_device(device):
        device_of.index = index_of(device)

    def exchange(index):
        before = current_device()
        if index >= 0:
            device_of.index = index
        return before

    class on_device:
        def __init__(self, device):
            self.index = index_of(device) if device is not None else None

        def __enter__(self):
            self.before = current_device()
            if self.index is not None:
                device_of.index = self.index

        def __exit__(self, *e):
            device_of.index = self.before
            return False

    class Stream:
        count = 0

        def __init__(self, device=None, priority=0, stream_id=None, **kwargs):
            if stream_id is None:
                Stream.count += 1
                stream_id = Stream.count
                writer.write(["mark", "stream", stream_id])
            self.stream_id = self.cuda_stream = stream_id
            self.device_index = index_of(device)
            self.device_type = 1
            self.device = torch.device("cuda", self.device_index)
            self.priority = priority

        def wait_event(self, event):
            writer.write(["mark", "wait_event", self.stream_id])

        def wait_stream(self, stream):
            writer.write(["mark", "wait_stream", self.stream_id, stream.stream_id])

        def record_event(self, event=None):
            event = event or Event()
            event.record(self)
            return event

        def synchronize(self):
            writer.write(["mark", "synchronize", self.stream_id])

        def query(self):
            return True

        def is_capturing(self):
            return False

        def __enter__(self):
            self.entered = on_stream(self)
            self.entered.__enter__()
            return self

        def __exit__(self, *e):
            return self.entered.__exit__(*e)

        def __eq__(self, other):
            return isinstance(other, Stream) and self.stream_id == other.stream_id

        def __hash__(self):
            return hash(self.stream_id)

    class Event:
        def __init__(self, enable_timing=False, blocking=False, interprocess=False, **kwargs):
            self.cuda_event = 0

        def record(self, stream=None):
            writer.write(["mark", "record_event", stream.stream_id if stream is not None else current_stream()])

        def wait(self, stream=None):
            writer.write(["mark", "wait_event", stream.stream_id if stream is not None else current_stream()])

        def elapsed_time(self, other):
            return 1.0

        def query(self):
            return True

        def synchronize(self):
            writer.write(["mark", "synchronize"])

    class CUDAGraph:
        def __init__(self, *args, **kwargs):
            doubt("a CUDA graph cannot be recorded")
            raise RuntimeError("memplan record: a CUDA graph cannot be recorded")

    class on_stream:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            self.before = current_stream()
            if self.stream is not None:
                stream_of.id = self.stream.stream_id

        def __exit__(self, *e):
            stream_of.id = self.before
            return False

    def allocated(device=None):
        return used[index_of(device)]

    def most(device=None):
        return peak[index_of(device)]

    def reset(device=None):
        i = index_of(device)
        peak[i] = used[i]

    def mark(*line):
        writer.write(["mark", *line])

    def stats(device=None):
        i = index_of(device)
        out = collections.OrderedDict()
        for key in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "inactive_split_bytes"):
            for pool in ("all", "large_pool", "small_pool"):
                out[f"{key}.{pool}.current"], out[f"{key}.{pool}.peak"] = used[i], peak[i]
                out[f"{key}.{pool}.allocated"] = out[f"{key}.{pool}.freed"] = 0
        out["num_alloc_retries"] = out["num_ooms"] = 0
        return out

    def rng_state(device="cuda"):
        return torch.zeros(16, dtype=torch.uint8)

    properties = Properties()
    for name, value in {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": current_device, "set_device": set_device, "init": nothing,
        "_lazy_init": nothing, "is_initialized": lambda: True, "get_device_name": lambda device=None: GPU["name"],
        "get_device_capability": lambda device=None: (MAJOR, MINOR), "get_device_properties": lambda device=None: properties,
        "_exchange_device": exchange, "_maybe_exchange_device": exchange, "_get_device_index": lambda device, optional=False, allow_cpu=False: index_of(device),
        "synchronize": lambda device=None: mark("synchronize"), "empty_cache": lambda: mark("empty_cache"), "ipc_collect": nothing,
        "is_bf16_supported": is_bf16_supported, "is_tf32_supported": lambda: MAJOR >= 8,
        "current_stream": lambda device=None: Stream(device, stream_id=current_stream()), "default_stream": lambda device=None: Stream(device, stream_id=0),
        "set_stream": lambda s: setattr(stream_of, "id", s.stream_id), "stream": on_stream, "Stream": Stream, "Event": Event, "CUDAGraph": CUDAGraph, "StreamContext": on_stream,
        "device": on_device, "_DeviceGuard": on_device, "memory_allocated": allocated, "max_memory_allocated": most, "memory_reserved": allocated, "max_memory_reserved": most,
        "memory_cached": allocated, "max_memory_cached": most, "reset_peak_memory_stats": reset, "reset_max_memory_allocated": reset,
        "reset_max_memory_cached": reset, "reset_accumulated_memory_stats": nothing, "memory_stats": stats, "memory_summary": lambda *a, **k: "",
        "memory_snapshot": lambda *a: [], "mem_get_info": lambda device=None: (GPU["memory"] - used[index_of(device)], GPU["memory"]),
        "set_per_process_memory_fraction": lambda fraction, device=None: mark("set_per_process_memory_fraction", fraction),
        "manual_seed": reseed, "manual_seed_all": reseed, "seed": reseed, "seed_all": reseed, "initial_seed": lambda: 0, "get_rng_state": rng_state,
        "get_rng_state_all": lambda: [rng_state()], "set_rng_state": reseed, "set_rng_state_all": reseed,
        "get_arch_list": lambda: [f"sm_{MAJOR}{MINOR}"], "get_gencode_flags": lambda: "", "_is_compiled": lambda: True, "_is_in_bad_fork": lambda: False,
        "current_blas_handle": lambda: 0, "utilization": lambda device=None: 0, "memory_usage": lambda device=None: 0, "temperature": lambda device=None: 0,
        "power_draw": lambda device=None: 0, "clock_rate": lambda device=None: 0, "can_device_access_peer": lambda a, b: False, "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": nothing, "is_current_stream_capturing": lambda: False,
    }.items():
        put(value, name, cuda, cuda.memory, cuda.random, cuda.streams)
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        for name, value in {
            "is_available": lambda: True, "device_count": lambda: 1, "current_accelerator": lambda check_available=False: torch.device("cuda"),
            "current_device_index": current_device, "current_device_idx": current_device, "set_device_index": set_device, "set_device_idx": set_device,
            "synchronize": lambda device=None: mark("synchronize"), "current_stream": cuda.current_stream, "set_stream": cuda.set_stream,
            "device_index": on_device, "empty_cache": lambda: mark("empty_cache"), "memory_allocated": allocated, "max_memory_allocated": most,
            "memory_reserved": allocated, "max_memory_reserved": most, "reset_peak_memory_stats": reset, "reset_accumulated_memory_stats": nothing,
            "memory_stats": stats, "get_memory_info": cuda.mem_get_info, "get_device_capability": nothing,
        }.items():
            put(value, name, accelerator, *([accelerator.memory] if hasattr(accelerator, "memory") else []))
    def pin_memory(self, device=None):
        if threading.current_thread() is threading.main_thread():
            mark("pin_memory", self.untyped_storage().nbytes())
        out = self.detach().clone()
        pinned.add(out.untyped_storage()._cdata)
        weakref.finalize(out.untyped_storage(), pinned.discard, out.untyped_storage()._cdata)
        return out

    def storage_on(device, size):
        return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()

    def storage_to_cuda(self, device=None, non_blocking=False):
        if self.device.type == "cuda":
            return self
        return storage_on(torch.device("cuda", index_of(device)), self.nbytes())

    def storage_clone(self):
        return storage_on(self.device, self.nbytes()) if self.device.type == "cuda" else clone(self)

    def storage_cpu(self):
        return torch.zeros(self.nbytes(), dtype=torch.uint8).untyped_storage() if self.device.type == "cuda" else self

    def storage_to(self, *, device, non_blocking=False):
        kind = torch.device(device).type
        return storage_to_cuda(self, device) if kind == "cuda" else storage_cpu(self) if kind == "cpu" else to(self, device=device, non_blocking=non_blocking)

    base = torch.storage._StorageBase
    clone, to = base.clone, base.to
    base.to = torch.UntypedStorage.to = storage_to
    base.cuda, base.clone, base.cpu = storage_to_cuda, storage_clone, storage_cpu
    torch.UntypedStorage.cuda, torch.UntypedStorage.clone, torch.UntypedStorage.cpu = storage_to_cuda, storage_clone, storage_cpu

    class Generator(torch._C.Generator):
        def __new__(cls, device="cpu"):
            self = super().__new__(cls, "cpu")
            self.on = torch.device(device)
            return self

        def __init__(self, device="cpu"):
            pass

        device = property(lambda self: self.on)

    torch.Generator = Generator
    tensor_types()

    def scatter(tensor, devices, chunk_sizes=None, dim=0, streams=None):
        return (tensor.to(torch.device("cuda", devices[0]), non_blocking=True),)

    if not hasattr(torch._C, "_scatter"):
        torch._C._scatter = scatter

    def record_stream(self, stream):
        writer.write(["mark", "record_stream", show(self), stream.stream_id])

    torch.Tensor.record_stream = record_stream
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        put(nothing, name, cuda.nvtx)
    pinned = set()
    torch.Tensor.pin_memory = pin_memory

    def pinning(make):
        """A function that makes tensors and takes pin_memory, for which the CPU build asks the library of CUDA."""

        @functools.wraps(make)
        def f(*args, pin_memory=False, **kwargs):
            out = make(*args, **kwargs)
            return out.pin_memory() if pin_memory and out.device.type == "cpu" else out
        return f

    for name in ("empty", "empty_strided", "empty_like", "zeros", "ones", "full", "tensor", "rand", "randn", "arange"):
        setattr(torch, name, pinning(getattr(torch, name)))
    torch.Tensor.is_pinned = lambda self, device=None: self.device.type == "cpu" and self.untyped_storage()._cdata in pinned
    cuda._initialized = True
    cuda.default_generators = (torch.default_generator,)
    torch._C._get_accelerator = lambda *a: torch.device("cuda")
    if not hasattr(torch._C, "_cuda_getCurrentRawStream"):
        torch._C._cuda_getCurrentRawStream = lambda device=None: 0
    if not CUDA_BUILD:
        torch.version.cuda = "12.4"
        torch.backends.cuda.is_built = lambda: True
        torch._C._has_cuda = torch._C.has_cuda = True
    torch.backends.cudnn.is_available = lambda: True
    torch.backends.cudnn.version = lambda: 90100
    torch.backends.cudnn.is_acceptable = acceptable
    torch._use_cudnn_rnn_flatten_weight = lambda: True
    rnn = importlib.import_module("torch.backends.cudnn.rnn")

    rnn.get_cudnn_mode = lambda mode: MODES[mode.lower()]


def install_training():
    """Phases, modules, and when to stop."""
    Optimizer = torch.optim.Optimizer
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    done = collections.Counter()  # steps by optimizer

    def on_gpu(optimizer):
        return any(p.is_cuda for g in optimizer.param_groups for p in g["params"][:1])

    def before(optimizer, args, kwargs):
        writer.write(["phase", "optimizer", done[id(optimizer)]])

    def after(optimizer, args, kwargs):
        if not on_gpu(optimizer):
            return
        done[id(optimizer)] += 1
        n = done[id(optimizer)]
        writer.write(["phase", "step", n])
        if min(done.values()) >= STEPS or n >= 4 * STEPS:
            stop()

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)

    zero_grad = Optimizer.zero_grad

    def wrapped(self, *args, **kwargs):
        writer.write(["phase", "zero_grad", done[id(self)]])
        zero_grad(self, *args, **kwargs)
        writer.write(["phase", "forward", max(done.values(), default=0)])

    Optimizer.zero_grad = wrapped

    backward = torch.autograd.backward
    count = [0]

    def run(*args, **kwargs):
        writer.write(["phase", "backward", count[0]])
        count[0] += 1
        where()
        try:
            return backward(*args, **kwargs)
        finally:
            writer.write(["phase", "forward", count[0]])
            if not done and count[0] >= 100 * STEPS:
                stop("no optimizer of torch.optim took a step in %d backward passes" % count[0])

    torch.autograd.backward = run

    call = torch.nn.Module.__call__
    stack = threading.local()

    def entered(self, *args, **kwargs):
        if writer.closed:
            return call(self, *args, **kwargs)
        writer.write(["enter", writer.str(path_of(self, stack)), writer.str(type(self).__name__)])
        try:
            return call(self, *args, **kwargs)
        finally:
            stack.modules.pop()
            writer.write(["leave"])

    torch.nn.Module.__call__ = entered

    if torch.distributed.is_available():
        install_distributed(importlib.import_module("torch.distributed.distributed_c10d"))
    global CLEAR_CACHE
    CLEAR_CACHE, torch.clear_autocast_cache = torch.clear_autocast_cache, clear_autocast_cache

    torch.compile = compiled


def clear_autocast_cache():
    """Frees in the order of conversion: PyTorch's is that of a hash table of addresses, which differs from run to run."""
    writer.cleared = []
    CLEAR_CACHE()
    freed, writer.cleared = sorted(writer.cleared), None
    for n in freed:
        writer.write(["free", n])


def install_distributed(module):
    """Process groups of the fake backend, whose collectives do nothing, in place of any other."""
    init = module.init_process_group

    def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="", pg_options=None, device_id=None):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        world = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1"))
        me = rank if rank >= 0 else int(os.environ.get("RANK", "0"))
        doubt(f"the collectives of {world} processes are played by {module.__name__}'s fake backend: {backend or 'its default'} may hold buffers of its own")
        init("fake", store=FakeStore(), rank=me, world_size=world)

    ddp = importlib.import_module("torch.nn.parallel.distributed")
    ddp._verify_param_shape_across_processes = lambda *args, **kwargs: True
    ddp_init = ddp.DistributedDataParallel.__init__
    register_comm_hook = ddp.DistributedDataParallel.register_comm_hook

    def allreduce(world, bucket):
        bucket.buffer().div_(world)
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def initialized(self, *args, **kwargs):
        ddp_init(self, *args, **kwargs)
        register_comm_hook(self, module.get_world_size(), allreduce)

    ddp.DistributedDataParallel.__init__ = initialized
    ddp.DistributedDataParallel.register_comm_hook = lambda self, state, hook: doubt("a hook of DistributedDataParallel's communication is left out")
    module.init_process_group = init_process_group
    sys.modules["torch.distributed"].init_process_group = init_process_group
    sys.modules["torch.distributed"].is_nccl_available = lambda: True


def path_of(module, stack):
    """The name of a module in the one that calls it."""
    modules = getattr(stack, "modules", None)
    if modules is None:
        modules = stack.modules = []
    path = ""
    for above, prefix in reversed(modules):
        name = name_in(above, module)
        if name is not None:
            path = f"{prefix}.{name}" if prefix else name
            break
    modules.append((module, path))
    return path


paths = weakref.WeakKeyDictionary()  # of the modules in a module, which it does not keep alive


def name_in(above, module):
    names = paths.get(above)
    if names is None:
        names = paths[above] = {id(m): n for n, m in above.named_modules()}
    return names.get(id(module))


def compiled(model=None, **kwargs):
    doubt("torch.compile is played without compiling")
    return model if model is not None else lambda f: f


def stop(text=""):
    """Ends the script where it is."""
    finish("steps", text)
    sys.stdout.flush()
    sys.stderr.flush()
    children = sys.modules.get("multiprocessing.process")
    for child in list(children._children) if children else []:
        try:
            child.terminate()
        except Exception:
            pass
    os._exit(0)


def finish(reason, text=""):
    writer.end(reason, text)
    for m, _, _ in managed.values():
        m.deleter = Deleter()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(m))


def install_exit():
    failed = []
    hook = sys.excepthook

    def excepthook(kind, value, trace):
        last, t = None, trace
        while t is not None:
            at = own.get(t.tb_frame.f_code.co_filename, 0)
            if at == 0:
                at = own[t.tb_frame.f_code.co_filename] = owned(t.tb_frame.f_code.co_filename)
            if at is not None:
                last = (at, t.tb_lineno, t.tb_frame.f_code.co_name)
            t = t.tb_next
        text = f"{kind.__name__}: {value}".partition("\n")[0]
        writer.end("error", text if len(text) <= 300 else text[:300] + " ...", writer.intern("frame", last, *last) if last else None)
        hook(kind, value, trace)

    sys.excepthook = excepthook
    atexit.register(finish, "exit")


def start():
    if OUT:
        sys.meta_path.insert(0, Finder("torch", install))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=forked)


def forked():
    """A process that was forked, such as a DataLoader's worker, writes nothing, not even what is still buffered."""
    writer.closed = True
    if writer.file:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, writer.file.fileobj.fileno())


if __name__ == "sitecustomize":
    start()
    other()
