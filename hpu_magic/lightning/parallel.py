"""Strategies for multiple cards: one process per card, with gradients averaged using ``hccl``.

The classes adapt Lightning's strategies to the device: the local rank of each process determines
its card, and the vendor's library can compute sums but not averages.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from hpu_magic.errors import HPUError
from hpu_magic.lightning.processes.devices import card
from hpu_magic.lightning.strategy import EvaluationOnHPU, StrategyOnHPU

PARALLEL = "hpu_parallel"
"""Name of the default strategy for multiple cards."""
DDP = "hpu_ddp"
"""Alternative name for the default strategy."""
_BACKEND = "hccl"


class StrategyOverHCCL(StrategyOnHPU):
    """Base class of all strategies for multiple cards."""

    cluster_environment: Any
    world_size: int
    global_rank: int
    local_rank: int
    num_processes: int
    num_nodes: int
    _parallel_devices: list[torch.device] | None
    _process_group_backend: str | None
    _timeout: Any
    _connect: Callable[..., None]
    _launcher: Any
    _script_launcher_class: type[Any]

    @property
    def parallel_devices(self) -> list[torch.device] | None:
        """The devices of all processes on this machine."""
        return self._parallel_devices

    @parallel_devices.setter
    def parallel_devices(self, devices: list[torch.device] | None) -> None:
        self._parallel_devices = devices and [_of_own_card(device) for device in devices]

    @property
    def root_device(self) -> torch.device:
        """The device of this process; it has the same index as the device of its tensors."""
        return card(super().root_device)  # type: ignore[misc]

    @property
    def process_group_backend(self) -> str:
        """The backend of the process group, ``"hccl"`` by default."""
        return self._process_group_backend or _BACKEND

    def _configure_launcher(self) -> None:
        """Start the other processes by rerunning the script, unless a launcher has started them."""
        self._process_group_backend = _for_cards(self.process_group_backend)
        super()._configure_launcher()  # type: ignore[misc]
        started = self.cluster_environment.creates_processes_externally
        if started or getattr(self, "_start_method", "popen") == "popen":
            self._launcher = self._script_launcher_class(
                self.cluster_environment, self.num_processes, self.num_nodes
            )

    def setup_environment(self) -> None:
        """Acquire this process's card, and connect to the other processes."""
        from habana_frameworks.torch.distributed import hccl

        self._reset_ranks()
        hccl.initialize_distributed_hpu(
            world_size=self.world_size, rank=self.global_rank, local_rank=self.local_rank
        )
        # Do not bind the process group to the device as Lightning does: a device mesh would split
        # a bound group, which hccl does not support. Without the binding, PyTorch warns at each
        # barrier.
        warnings.filterwarnings("ignore", r"barrier\(\): using the device under current context")
        self._connect(self.cluster_environment, self._process_group_backend, timeout=self._timeout)
        self._set_up_device()

    def _set_up_device(self) -> None:
        super().setup_environment()  # type: ignore[misc]

    def _reset_ranks(self) -> None:
        """Read the rank from the environment again, in case this process was spawned."""
        raise NotImplementedError


class TrainerOverHCCL(EvaluationOnHPU, StrategyOverHCCL):
    """Base class of ``Trainer``'s strategies for multiple cards."""

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Reduce a tensor over all processes; the default is the mean."""
        return _reduced(super().reduce, tensor, group, reduce_op)  # type: ignore[misc]

    def _reset_ranks(self) -> None:
        self.set_world_ranks()  # type: ignore[attr-defined]


class FabricOverHCCL(StrategyOverHCCL):
    """Base class of ``Fabric``'s strategies for multiple cards."""

    def all_reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Reduce a tensor over all processes; the default is the mean."""
        return _reduced(super().all_reduce, tensor, group, reduce_op)  # type: ignore[misc]

    def _reset_ranks(self) -> None:
        self._set_world_ranks()  # type: ignore[attr-defined]


class TrainerParallelHPUStrategyBase(TrainerOverHCCL):
    """Run one process per Intel Gaudi card, with gradients averaged across the cards.

    Accepts the parameters of Lightning's ``DDPStrategy``; `process_group_backend` defaults to
    ``"hccl"``.
    """

    strategy_name = PARALLEL

    def determine_ddp_device_ids(self) -> None:
        """Return None, because each module remains on its card."""

    def _register_ddp_hooks(self) -> None:
        if self._ddp_comm_hook is not None:  # type: ignore[attr-defined]
            state, hook = self._ddp_comm_state, self._ddp_comm_hook  # type: ignore[attr-defined]
            if self._ddp_comm_wrapper is not None:  # type: ignore[attr-defined]
                hook = self._ddp_comm_wrapper(hook)  # type: ignore[attr-defined]
            self.model.register_comm_hook(state, hook)  # type: ignore[attr-defined]

    def on_exception(self, exception: BaseException) -> None:
        """Mention ``find_unused_parameters`` in PyTorch's error message about unused parameters."""
        if "Expected to have finished reduction in the prior iteration" in str(exception):
            exception.args = (
                "Some parameters did not contribute to the loss that training_step returned; if "
                f"this is intended, use strategy={type(self).__name__}(find_unused_parameters=True)"
                f". {exception}",
            )


class FabricParallelHPUStrategyBase(FabricOverHCCL):  # noqa: D101 (below)
    __doc__ = TrainerParallelHPUStrategyBase.__doc__
    strategy_name = PARALLEL

    def _determine_ddp_device_ids(self) -> None:
        return None


class HPUDDPStrategyBase:
    """Another name for HPUParallelStrategy."""

    strategy_name = DDP


def _of_own_card(device: Any) -> torch.device:
    if card(device) != torch.device("hpu", 0):
        raise HPUError(
            f"parallel_devices contains {str(device)!r}, but each process sees its card as hpu:0: "
            "remove parallel_devices, and write devices=N."
        )
    return torch.device(device)


def _for_cards(backend: str) -> str:
    """Return the process group's backend; raise HPUError if it does not use hccl on the device."""
    if backend != _BACKEND and f"hpu:{_BACKEND}" not in backend.split(","):
        raise HPUError(
            f"process_group_backend={backend!r} does not support tensors on a card: remove it, or "
            "write 'hccl', or 'cpu:gloo,hpu:hccl' to exchange CPU tensors as well."
        )
    return backend


REDUCTIONS = {
    "sum": torch.distributed.ReduceOp.SUM,
    "min": torch.distributed.ReduceOp.MIN,
    "max": torch.distributed.ReduceOp.MAX,
}
"""The reductions that the vendor's library supports, by name."""


def is_over_hccl() -> bool:
    """Return whether this process is in a process group that uses ``hccl``."""
    distributed = torch.distributed
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and "hccl" in distributed.get_backend()
    )


def is_reduction(reduce_op: Any) -> bool:
    """Return True if `all_reduced` supports `reduce_op`, else raise TypeError."""
    name = reduce_op.lower() if isinstance(reduce_op, str) else reduce_op
    means = "mean", "avg", torch.distributed.ReduceOp.AVG
    if not any(name == each for each in (*REDUCTIONS, *REDUCTIONS.values(), *means)):
        raise TypeError(
            f"reduce_op={reduce_op!r} is not supported over hccl; write "
            f"{', '.join(map(repr, REDUCTIONS))} or 'mean'."
        )
    return True


def all_reduced(result: torch.Tensor, group: Any = None, reduce_op: Any = "sum") -> torch.Tensor:
    """Reduce a tensor over all processes in place, and return it.

    Raises
    ------
    TypeError
        `reduce_op` is not supported.
    """
    reduce_op = "sum" if reduce_op is None else reduce_op
    is_reduction(reduce_op)
    return _reduced(_all_reduce, result, group, reduce_op)  # type: ignore[no-any-return]


def all_reduced_if_over_hccl(
    result: torch.Tensor, group: Any = None, reduce_op: Any = "sum"
) -> torch.Tensor:
    """Reduce a tensor if the process is in a group that uses ``hccl``, else return it as is."""
    return all_reduced(result, group, reduce_op) if is_over_hccl() else result


def _all_reduce(tensor: torch.Tensor, group: Any, reduce_op: Any) -> torch.Tensor:
    named = REDUCTIONS[reduce_op.lower()] if isinstance(reduce_op, str) else reduce_op
    torch.distributed.all_reduce(tensor, named, group)
    return tensor


def _reduced(reduce: Any, tensor: Any, group: Any, reduce_op: Any) -> Any:
    """Reduce in place; compute a mean from the sum, because the vendor's library cannot average."""
    distributed = torch.distributed
    is_mean = (
        reduce_op.lower() in ("mean", "avg")
        if isinstance(reduce_op, str)
        else reduce_op == distributed.ReduceOp.AVG
    )
    if not is_mean or not isinstance(tensor, torch.Tensor) or not distributed.is_initialized():
        return reduce(tensor, group, reduce_op)
    total = reduce(tensor, group, "sum")
    mean = total / distributed.get_world_size(group)
    return total.copy_(mean)
