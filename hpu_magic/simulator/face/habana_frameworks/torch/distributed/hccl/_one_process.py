"""Collectives among the processes of a group that is one process: copies, and nothing to add."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_NAME = "hccl"


def register() -> None:
    """Add the backend to `torch.distributed`, once."""
    if dist.is_available() and not hasattr(dist.Backend, _NAME.upper()):
        dist.Backend.register_backend(_NAME, _create, devices=["hpu"])


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    if size > 1:
        raise RuntimeError(
            f"The simulator's hccl serves groups of one process, and this one has {size}: start "
            "one process, or pass backend='gloo' and keep what is exchanged on the CPU."
        )
    return _group_class()(rank, size)


def _group_class() -> type:
    """Return the class of groups; `torch.distributed` may be a build without it."""
    from torch._C._distributed_c10d import (
        ProcessGroup,
        ReduceOp,
        Work,
        _create_work_from_future,
    )
    from torch.futures import Future

    supported = (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX)

    def done(result: Any) -> Work:
        future: Future[Any] = Future()
        future.set_result(result)
        return _create_work_from_future(future)

    def check(opts: Any, tensors: Sequence[torch.Tensor]) -> None:
        operation = opts.reduceOp
        if operation == ReduceOp.AVG and any(each.dtype == torch.bool for each in tensors):
            raise RuntimeError("Cannot use ReduceOp.AVG with boolean inputs")
        if not any(operation == each for each in supported):  # ReduceOp compares one way only
            raise RuntimeError(
                "Unsupported ReduceOp for HCCL process group: use SUM, PRODUCT, MIN or MAX."
            )

    def copied(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> Work:
        for output, given in zip(outputs, inputs, strict=True):
            output.copy_(given.view_as(output))
        return done(list(outputs))

    class OneProcess(ProcessGroup):
        """A group of one: what it exchanges is its own."""

        def getBackendName(self) -> str:
            return _NAME

        @property
        def pg_name(self) -> str:
            return dist.distributed_c10d._world.pg_names[self]

        @property
        def group_name(self) -> str:
            return self.pg_name

        def __repr__(self) -> str:
            return f"<{_NAME} process group of one process>"

        def allreduce(self, tensors: Any, opts: Any = None) -> Work:
            if opts is not None:
                check(opts, tensors)
            return done(tensors)

        allreduce_coalesced = allreduce

        def reduce(self, tensors: Any, opts: Any) -> Work:
            check(opts, tensors)
            return done(tensors)

        def broadcast(self, tensors: Any, opts: Any = None) -> Work:
            return done(tensors)

        def barrier(self, opts: Any = None) -> Work:
            torch.hpu.synchronize()
            return done(None)

        # A list of outputs for each input; one process gives one output each.
        def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
            return copied([each[0] for each in outputs], inputs)

        def _allgather_base(self, output: Any, given: Any, opts: Any = None) -> Work:
            return copied([output], [given])

        def allgather_into_tensor_coalesced(
            self, outputs: Any, inputs: Any, opts: Any = None
        ) -> Work:
            return copied(outputs, inputs)

        def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
            return copied([each[0] for each in outputs], inputs)

        def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
            return copied(outputs, [each[0] for each in inputs])

        def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any) -> Work:
            check(opts, outputs)
            return copied(outputs, [each[0] for each in inputs])

        def _reduce_scatter_base(self, output: Any, given: Any, opts: Any) -> Work:
            check(opts, [output])
            return copied([output], [given])

        def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any) -> Work:
            check(opts, outputs)
            return copied(outputs, inputs)

        def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
            return copied(outputs, inputs)

        def alltoall_base(
            self, output: Any, given: Any, output_sizes: Any, input_sizes: Any, opts: Any = None
        ) -> Work:
            return copied([output], [given])

        def send(self, tensors: Any, destination: int, tag: int = 0) -> Work:
            raise RuntimeError("A group of one process has nobody else to send to.")

        def recv(self, tensors: Any, source: int, tag: int = 0) -> Work:
            raise RuntimeError("A group of one process has nobody else to receive from.")

        def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
            raise RuntimeError("HCCL does not receive from any source: name the rank.")

        # PyTorch's releases ask for the same by different names.
        allgather_coalesced = allgather
        all_gather_single = _allgather_base
        all_gather_single_coalesced = allgather_into_tensor_coalesced
        reduce_scatter_single = _reduce_scatter_base
        reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
        all_to_all_single = alltoall_base

    return OneProcess
