"""A process group of one process that stands for the first of several.

Collectives are done at once with what this process has, so that a job for many
GPUs runs on one and allocates what each of its processes does; what NCCL itself
would take is missing, and the numbers mean nothing.
"""
import io
import os
import pickle
import re

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future


def done(result):
    future = Future()
    future.set_result(result)
    return _create_work_from_future(future)


class StandIn(dist.ProcessGroup):
    def __init__(self, rank, size):
        super().__init__(rank, size)
        self.ranks = size

    def size(self):
        return self.ranks

    def getBackendName(self):
        return "stand-in"

    @property
    def pg_name(self):
        return dist.distributed_c10d._world.pg_names[self]

    @property
    def group_name(self):
        return self.pg_name

    incoming = []  # what the next calls of recv fill in; without it, buffers stay as they are

    def _start_coalescing(self, device):
        pass

    def _end_coalescing(self, device):
        return done([])

    def send(self, tensors, dst, tag):
        return done([])

    def recv(self, tensors, src, tag):
        if self.incoming:
            tensors[0].copy_(self.incoming.pop(0))
        return done(tensors)

    def barrier(self, opts=None):
        return done([])

    def broadcast(self, tensors, opts=None):
        return done(tensors)

    def allreduce(self, tensors, opts=None):
        return done(tensors)

    def reduce(self, tensors, opts=None):
        return done(tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        return done(tensors)

    def allgather(self, outputs, inputs, opts=None):
        for out, own in zip(outputs, inputs):
            flat = torch.empty([len(out), *own.size()], dtype=own.dtype, device=own.device)  # as ProcessGroupNCCL
            for t in out:
                t.detach().copy_(own)
            del flat
        return done(outputs)

    def scatter(self, outputs, inputs, opts=None):
        for out, parts in zip(outputs, inputs):
            out.detach().copy_(parts[self.rank()])
        return done(outputs)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, own in zip(outputs, inputs):
            self._allgather_base(output, own)
        return done(outputs)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, whole in zip(outputs, inputs):
            self._reduce_scatter_base(output, whole)
        return done(outputs)

    def _allgather_base(self, output, own, opts=None):
        for part in output.detach().view(-1).chunk(self.ranks):
            part.copy_(own.reshape(-1))
        return done([output])

    def _reduce_scatter_base(self, output, whole, opts=None):
        output.detach().view(-1).copy_(whole.reshape(-1).chunk(self.ranks)[self.rank()])
        return done([output])

    all_gather_single = _allgather_base  # as PyTorch 2.14 calls them
    reduce_scatter_single = _reduce_scatter_base


def ranks(script):
    """How many processes a script of memplan export torch is for; 0: it is for one GPU."""
    m = re.search(r"torchrun --nproc-per-node ([0-9]+)", script)
    return int(m[1]) if m else 0


def planned(script):
    """The process that such a script is the plan of."""
    m = re.search(r"Process ([0-9]+) is the one that is planned", script)
    return int(m[1]) if m else 0


def received(script, rank):
    """What such a script says that the stages of a process of a pipeline receive, as tensors on the meta device."""
    out, mesh = [], re.search(r'init_device_mesh\("cuda", \(([0-9]+), ([0-9]+)\), mesh_dim_names=\("pp", "dp"\)', script)
    copies = int(mesh[2]) if mesh else 1
    for m in re.finditer(r"# Stage ([0-9]+) receives (.*)", script):
        if int(m[1]) % (ranks(script) // copies) == rank // copies:
            with torch.device("meta"):
                out.append(eval(f"({m[2]},)", {"torch": torch}))
    return out


def receiving(objects):
    """Makes recv_object_list(...) receive objects, one after the other, with the tensors that it makes on the way."""
    receive, objects = dist.recv_object_list, iter(objects)

    def recv_object_list(*args, **kw):
        text, sent = io.BytesIO(), next(objects)
        pickle.Pickler(text).dump(sent)
        data = torch.frombuffer(bytearray(text.getvalue()), dtype=torch.uint8)
        StandIn.incoming = [torch.tensor([data.numel()]), data]
        add, c10d = torch.sum, dist.distributed_c10d
        load = c10d._tensor_to_object

        def total(sizes):  # where no kernel computes it
            out = add(sizes)
            out.copy_(torch.tensor(data.numel()))
            return out

        torch.sum, c10d._tensor_to_object = total, lambda *args: sent
        try:
            return receive(*args, **kw)
        finally:
            torch.sum, c10d._tensor_to_object = add, load

    dist.recv_object_list = recv_object_list


def install(ranks, rank=0, sent=()):
    """Makes init_process_group(...) that of one of so many processes, to which the one before sends objects."""
    if sent:
        receiving(sent)
    os.environ.update(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(ranks))
    dist.Backend.register_backend("standin", lambda store, rank, size, timeout: StandIn(rank, size), devices=["cuda", "cpu"])
    init = dist.init_process_group
    dist.init_process_group = lambda *args, **kw: init("standin", rank=rank, world_size=ranks, store=dist.HashStore())
