"""The optimizer's step: run for one parameter of each shape, and counted for all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from hpu_magic.estimate.errors import EstimateError
from hpu_magic.estimate.tracing.place import device_type
from hpu_magic.estimate.tracing.program import Phase, Role
from hpu_magic.estimate.tracing.recorder import Recorder

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def maker(optimizer: torch.optim.Optimizer | str | None) -> Make | None:
    """Return what makes an optimizer like the given one over other parameters; None for None.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer, str or None
        An instance, of which the class and the options of its first group count; a name of
        `torch.optim`, or ``"FusedAdamW"`` and the vendor's others, in any spelling of case and
        underscores; None for no optimizer.

    Raises
    ------
    EstimateError
        No optimizer has the name.
    """
    if optimizer is None:
        return None
    if isinstance(optimizer, torch.optim.Optimizer):
        kind, options = type(optimizer), dict(optimizer.defaults)
        return lambda parameters: kind(parameters, **options)
    found = _by_name(optimizer)
    return lambda parameters: found(parameters, lr=1e-3)


def _by_name(name: str) -> Any:
    places = [torch.optim]
    if device_type() == "hpu":
        from habana_frameworks.torch.hpex import optimizers as vendors

        places.insert(0, vendors)
    kinds = {
        _plain(each): getattr(place, each)
        for place in places
        for each in dir(place)
        if isinstance(getattr(place, each), type)
        and issubclass(getattr(place, each), torch.optim.Optimizer)
        and getattr(place, each) is not torch.optim.Optimizer
    }
    try:
        return kinds[_plain(name)]
    except KeyError:
        raise EstimateError(
            f"optimizer={name!r} is none that torch.optim or habana_frameworks has: give an "
            f"instance, None, or one of {', '.join(sorted(kinds))}."
        ) from None


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def record_step(make: Make, recorder: Recorder, parameters: Iterable[nn.Parameter]) -> None:
    """Record a step of an optimizer over parameters that have gradients.

    Parameters of one shape and type are stepped alike, so that one of them runs, and is counted as
    often as there are. What an optimizer keeps is taken to be there before the program begins, as
    it is from the second step on.

    Raises
    ------
    EstimateError
        The optimizer needs what only real numbers tell.
    """
    alike: dict[tuple[Any, ...], list[nn.Parameter]] = defaultdict(list)
    for one in parameters:
        alike[(tuple(one.shape), one.dtype)].append(one)
    for group in alike.values():
        try:
            _record_group(make, recorder, group[0], len(group))
        except (DataDependentOutputException, DynamicOutputShapeException, TypeError) as error:
            raise EstimateError(
                f"A step of this optimizer cannot be traced without numbers ({error}): give "
                'another, such as optimizer="adamw" for its memory, or None.'
            ) from error


def _record_group(make: Make, recorder: Recorder, first: nn.Parameter, count: int) -> None:
    # A parameter of its own: the memory of the model's and of its gradient is counted already.
    with recorder.paused():
        stand_in = nn.Parameter(torch.empty_like(first))
        stand_in.grad = torch.empty_like(first)
        optimizer = make([stand_in])
        optimizer.step()
    for value in (stand_in, stand_in.grad):
        recorder.stand_for(value)
    for value in _tensors(list(optimizer.state.values())):
        if value.device.type == device_type():
            recorder.hold(value, Role.OPTIMIZER, count=count)
    recorder.phase, recorder.times = Phase.OPTIMIZER, count
    try:
        optimizer.step()
    finally:
        recorder.phase, recorder.times = None, 1


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
