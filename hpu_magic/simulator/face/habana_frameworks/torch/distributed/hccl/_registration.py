"""Register the ``hccl`` backend with `torch.distributed`, FSDP and Dynamo."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from habana_frameworks.torch._import_hooks import when_imported

import torch
import torch.distributed as dist
from hpu_magic.simulator.dry_run import start as dry_run

NAME = "hccl"
_RANDOM = "torch.distributed.tensor._random"
_FSDP = "torch.distributed.fsdp._fully_shard._fsdp_collectives"
_FSDP_GROUP = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
# Functions of torch.distributed whose names contain one of these strings cause a graph break.
_COLLECTIVES = (
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
    "recv",
)


def register() -> None:
    """Add the backend to `torch.distributed`, unless it has already been added."""
    if not dist.is_available() or hasattr(dist.Backend, NAME.upper()):
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["hpu"])
    # In some releases, Dynamo may already have imported a test backend that claims the device.
    dist.Backend.default_device_backend_map["hpu"] = NAME
    _bind_groups_to_cards()
    _meet_before_connections()
    _accept_devices_of_barriers()
    when_imported(_RANDOM, _draw_by_offsets)
    when_imported(_RANDOM, _draw_in_one_operator)
    when_imported(_FSDP, _average_by_sums)
    when_imported(_FSDP_GROUP, _wait_on_current_stream)
    when_imported("torch._dynamo", _break_graphs_at_collectives)


def _create(options: Any, backend_options: Any) -> Any:
    from habana_frameworks.torch.distributed.hccl._group import create

    return create(options)


def _bind_groups_to_cards() -> None:
    """Let ``init_process_group(device_id=...)`` accept an HPU if PyTorch accepts only CUDA."""
    from torch.distributed import distributed_c10d

    original = distributed_c10d._new_process_group_helper
    if "cuda" not in inspect.unwrap(original).__code__.co_consts:
        return

    @functools.wraps(original)
    def make(*args: Any, device_id: torch.device | None = None, **options: Any) -> Any:
        if device_id is None or device_id.type != "hpu":
            return original(*args, device_id=device_id, **options)
        group, store = original(*args, **options)
        if isinstance(group, dist.ProcessGroup):  # this process is in the group
            group.bound_device_id = device_id
        return group, store

    distributed_c10d._new_process_group_helper = make


def _meet_before_connections() -> None:
    """Let ranks wait for each other before PyTorch connects them with a second backend.

    A backend such as gloo does not notice that a rank has ended, and ignores Ctrl-C.
    """
    from torch.distributed import distributed_c10d

    original = distributed_c10d._new_process_group_helper

    @functools.wraps(original)
    def make(
        size: int,
        rank: int,
        ranks: list[int],
        backend: str,
        store: Any,
        name: str,
        *args: Any,
        **options: Any,
    ) -> Any:
        several = "," in backend and f":{NAME}" in backend  # for example, "cpu:gloo,hpu:hccl"
        if several and not dry_run.is_on() and (not ranks or dist.get_rank() in ranks):
            from habana_frameworks.torch.distributed.hccl._meeting import Meeting

            Meeting(name, dist.PrefixStore(f"{name}/meeting", store), rank, size, ranks).members()
        return original(size, rank, ranks, backend, store, name, *args, **options)

    distributed_c10d._new_process_group_helper = make


def _accept_devices_of_barriers() -> None:
    """Let ``barrier(device_ids=...)`` accept the number of the card in the machine.

    PyTorch creates a tensor on that device, but each process sees its only card as device 0.
    """
    from torch.distributed import distributed_c10d

    original = distributed_c10d.barrier

    @functools.wraps(original)
    def barrier(
        group: Any = None, async_op: bool = False, device_ids: Any = None, **options: Any
    ) -> Any:
        # PyTorch's own check handles an empty list and other types.
        card = [0] if isinstance(device_ids, list) and device_ids else device_ids
        return original(group, async_op, card, **options)

    distributed_c10d.barrier = dist.barrier = barrier


def _draw_by_offsets() -> None:
    """Make DTensor exit its random number context even after an error, which PyTorch does not do.

    DTensor can then also use a generator that the user passes. PyTorch expects the state of a
    generator to be a seed and an offset.
    """
    from habana_frameworks.torch.hpu.random import PhiloxStates

    from torch.distributed.tensor._random import OffsetBasedRNGTracker as Tracker

    enter = Tracker._distribute_region
    if "set_rng_ctx" not in inspect.unwrap(enter).__code__.co_names:
        _draw_by_offsets_before_contexts(Tracker)
        return
    read = Tracker._get_device_state

    @functools.wraps(read)
    def get_device_state(self: Any) -> torch.Tensor:
        with _leaving_context(self):
            return read(self)

    @functools.wraps(enter)
    @contextlib.contextmanager
    def distribute_region(self: Any, spec: Any, generator: Any = None) -> Iterator[None]:
        if generator is not None and generator.device.type == "hpu":
            generator = PhiloxStates(generator)
        with _leaving_context(self), enter(self, spec, generator):
            yield

    Tracker._get_device_state = get_device_state
    Tracker._distribute_region = distribute_region


def _draw_by_offsets_before_contexts(tracker: Any) -> None:
    """Add a random number context to DTensor in torch 2.8 and earlier.

    DTensor expects the device's RNG state to consist of a seed and an offset.
    """
    initialize, enter = tracker.__init__, tracker._distribute_region

    @functools.wraps(initialize)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        with _offsets():
            initialize(self, *args, **kwargs)

    @functools.wraps(enter)
    @contextlib.contextmanager
    def distribute_region(self: Any, spec: Any) -> Iterator[None]:
        with _offsets(), enter(self, spec):
            yield

    tracker.__init__ = init
    tracker._distribute_region = distribute_region


@contextlib.contextmanager
def _offsets() -> Iterator[None]:
    """Represent the device's RNG state as a seed and an offset."""
    from habana_frameworks.torch.hpu.random import set_rng_ctx, unset_rng_ctx

    set_rng_ctx("philox")
    try:
        yield
    finally:
        unset_rng_ctx("philox")


def _draw_in_one_operator() -> None:
    """Let DTensor's random operator in torch 2.15 and later read a seed and an offset."""
    from torch._prims import rng_prims

    operator = getattr(rng_prims, "run_dtensor_rng_op", None)
    if operator is None:
        return
    original = operator.py_kernels[torch._C.DispatchKey.BackendSelect]

    @functools.wraps(original)
    def draw(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(each, torch.Tensor) and each.device.type == "hpu" for each in args):
            return original(*args, **kwargs)
        with _offsets():
            return original(*args, **kwargs)

    operator.py_kernels[torch._C.DispatchKey.BackendSelect] = draw
    operator._dispatch_cache.clear()


@contextlib.contextmanager
def _leaving_context(tracker: Any) -> Iterator[None]:
    try:
        yield
    finally:
        if tracker._device.type == "hpu":
            tracker._device_handle.unset_rng_ctx("philox")


def _average_by_sums() -> None:
    """Make FSDP sum gradients and then divide them, because HCCL has no averaging reduction."""
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives

    _fsdp_collectives._get_gradient_divide_factors = _dividing(
        _fsdp_collectives._get_gradient_divide_factors
    )


def _dividing(original: Callable[..., Any]) -> Callable[..., Any]:
    if "device_type" in inspect.signature(original).parameters:

        def factors(
            scatter: Any, reduce: Any, dtype: Any, device_type: str = "", *args: Any, **kwargs: Any
        ) -> Any:
            # FSDP has a special case for MTIA, whose library has no averaging reduction either.
            known = "mtia" if device_type == "hpu" else device_type
            return original(scatter, reduce, dtype, known, *args, **kwargs)

    else:

        def factors(
            scatter: Any, reduce: Any, dtype: Any, device_type: str = "", *args: Any, **kwargs: Any
        ) -> Any:
            # Older releases use a sum only for float16, to avoid overflow.
            on_card = torch.device("hpu") in scatter._device_types
            return original(scatter, reduce, torch.float16 if on_card else dtype)

    return factors


def _wait_on_current_stream() -> None:
    """Let FSDP free an unused all-gather; older releases require a CUDA stream for this."""
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

    original = FSDPParamGroup.finalize_backward
    if "cuda" not in original.__code__.co_names:
        return

    @functools.wraps(original)
    def finalize_backward(self: Any) -> None:
        gathered = self._all_gather_result
        if gathered is not None and gathered.all_gather_event is not None:
            self.device_handle.current_stream().wait_event(gathered.all_gather_event)
            self._all_gather_result = gathered._replace(all_gather_event=None)
        original(self)

    FSDPParamGroup.finalize_backward = finalize_backward


def _break_graphs_at_collectives() -> None:
    from torch._dynamo import trace_rules
    from torch.distributed import _functional_collectives

    # Otherwise, Dynamo replaces some of these functions with functions that it can trace.
    _functional_collectives.traceable_collective_remaps.clear()
    for name, function in vars(dist).items():
        # isinstance() would trigger a warning for deprecated names.
        if type(function) is FunctionType and any(part in name for part in _COLLECTIVES):
            trace_rules._disallowed_callable_ids.add(id(function))
