"""Make checkpoint loading, compilation and the profiler use the card instead of a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from habana_frameworks.torch._import_hooks import when_imported
from habana_frameworks.torch.gpu_migration import _log
from habana_frameworks.torch.gpu_migration._devices import place, places
from habana_frameworks.torch.gpu_migration._wrapping import OPERATORS, mapped_to_card, replace

import torch
from hpu_magic.torch_cuda import MATCH, MODIFIED

_BEFORE_CUDA = 19  # PyTorch's deserializer for CUDA has priority 20
_CUDA_COMPILER = "inductor"
_COMPILER = "hpu_backend"


def install() -> None:
    """Make `torch.load`, `torch.compile` and `torch.profiler` use the card."""
    torch.serialization.register_package(_BEFORE_CUDA, lambda storage: None, _from_gpu)
    for owner, name in (
        (torch, "torch"),
        (torch.serialization, "torch.serialization"),
        (torch.jit, "torch.jit"),
    ):
        replace(owner, "load", mapped_to_card(f"{name}.load", _mapped_locations))
    replace(torch, "compile", _compile)
    when_imported("torch._dynamo", _install_in_dynamo)
    replace(torch.profiler.profile, "__init__", _profile)
    replace(torch.autograd.profiler.profile, "__init__", _legacy_profile)


def _from_gpu(storage: Any, location: Any) -> Any:
    """Move a storage that was saved on a GPU to the card."""
    card = place(location)
    return None if card is location else storage.to(device=torch.device(card))


def _mapped_locations(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = places(args, kwargs)
    if len(args) > 1 and isinstance(args[1], dict):
        args = (args[0], _mapped(args[1]), *args[2:])
    if isinstance(kwargs.get("map_location"), dict):
        kwargs = {**kwargs, "map_location": _mapped(kwargs["map_location"])}
    return args, kwargs


def _mapped(locations: dict[Any, Any]) -> dict[Any, Any]:
    return {saved: place(wanted) for saved, wanted in locations.items()}


def _compile(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compile(model: Any = None, *, backend: Any = _CUDA_COMPILER, **options: Any) -> Any:
        if backend != _CUDA_COMPILER:
            return original(model, backend=backend, **options)
        # The mode and options are specific to the CUDA compiler.
        kept = {key: value for key, value in options.items() if key not in ("mode", "options")}
        became = f"torch.compile(backend={_COMPILER!r})"
        _log.note(MODIFIED, "torch.compile", (model,), options, became)
        return original(model, backend=_COMPILER, **kept)

    return compile


def _install_in_dynamo() -> None:
    """Make Dynamo treat the card's tensors as CUDA tensors, and the replacements as operators."""
    from torch._dynamo import allow_in_graph, trace_rules
    from torch._dynamo.variables.constant import ConstantVariable
    from torch._dynamo.variables.tensor import TensorVariable

    def method_attr_is_cuda(self: Any, tx: Any) -> Any:
        return None if self.device is None else ConstantVariable.create(self.device.type == "hpu")

    TensorVariable.method_attr_is_cuda = method_attr_is_cuda
    methods = trace_rules.get_tensor_method().union(
        each for each in OPERATORS if each is getattr(torch.Tensor, each.__name__, None)
    )
    trace_rules.get_tensor_method = functools.cache(lambda: methods)  # torch clears its cache
    for operator in OPERATORS:
        allow_in_graph(operator)


def _profile(original: Callable[..., None]) -> Callable[..., None]:
    activities = torch.profiler.ProfilerActivity

    @functools.wraps(original)
    def __init__(self: Any, **options: Any) -> None:
        if activities.CUDA in (options.get("activities") or ()):
            _log.note(MATCH, "torch.profiler.profile", (), options, "ProfilerActivity.HPU")
            kept = [each for each in options["activities"] if each != activities.CUDA]
            options["activities"] = [*kept, activities.HPU]
        original(self, **options)

    return __init__


def _legacy_profile(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, enabled: bool = True, **options: Any) -> None:
        if options.pop("use_cuda", False) or options.get("use_device") == "cuda":
            name, became = "torch.autograd.profiler.profile", "use_device='hpu'"
            _log.note(MATCH, name, (enabled,), options, became)
            options.update(use_device="hpu", use_kineto=True)
        original(self, enabled, **options)

    return __init__
