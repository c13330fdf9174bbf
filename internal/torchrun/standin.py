"""A process group of one process that stands for the first of several.

Collectives are done at once with what this process has, so that a job for many
GPUs runs on one and allocates what each of its processes does; what NCCL itself
would take is missing, and the numbers mean nothing.
"""
import os
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


def install(ranks, rank=0):
    """Makes init_process_group(...) that of one of so many processes."""
    os.environ.update(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(ranks))
    dist.Backend.register_backend("standin", lambda store, rank, size, timeout: StandIn(rank, size), devices=["cuda", "cpu"])
    init = dist.init_process_group
    dist.init_process_group = lambda *args, **kw: init("standin", rank=rank, world_size=ranks, store=dist.HashStore())
