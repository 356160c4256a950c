"""The optimizer's step: for one parameter of each shape, and counted for all, where it can be."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing.place import device_type
from hpu_magic.estimates.tracing.program import Phase, Role
from hpu_magic.estimates.tracing.recorder import Recorder
from hpu_magic.estimates.tracing.twins import STANDS_FOR

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def maker(optimizer: torch.optim.Optimizer | str | None) -> Make | None:
    """Return what makes an optimizer like the given one over other parameters; None for None.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer, str or None
        An instance, of which the class, the groups and their options count; a name of
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
        return _Like(optimizer)
    if not isinstance(optimizer, str):
        raise EstimateError(
            f"optimizer is a {type(optimizer).__name__}: give an instance of one, a name, or None."
        )
    found = _by_name(optimizer)
    return lambda parameters: found(parameters, lr=1e-3)


class _Like:
    """Makes optimizers with the groups and options of one that there is, without its state."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        # What accelerate wraps is the optimizer that steps.
        inner = getattr(optimizer, "optimizer", None)
        self._optimizer = inner if isinstance(inner, torch.optim.Optimizer) else optimizer
        self._groups = {
            id(one): number
            for number, group in enumerate(self._optimizer.param_groups)
            for one in group["params"]
        }

    def group_of(self, parameter: nn.Parameter) -> int | None:
        """Return the number of the group that a fake parameter's own is in; None for none."""
        return self._groups.get(id(getattr(parameter, STANDS_FOR, None)))

    def stepped(self, parameters: list[nn.Parameter]) -> list[nn.Parameter]:
        """Return those that it has; all where it has none, being made for a copy of the model."""
        own = [one for one in parameters if self.group_of(one) is not None]
        return own or parameters

    def __call__(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        groups = [{**group, "params": []} for group in self._optimizer.param_groups]
        for one in parameters:
            groups[self.group_of(one) or 0]["params"].append(one)
        groups = [one for one in groups if one["params"]]
        made: torch.optim.Optimizer = object.__new__(type(self._optimizer))
        vars(made).update(vars(self._optimizer), state=defaultdict(dict), param_groups=groups)
        vars(made).pop("step", None)  # a scheduler's, which is bound to the user's own
        for name, value in vars(made).items():
            if name.startswith("_optimizer_") and isinstance(value, OrderedDict):
                vars(made)[name] = OrderedDict()  # the user's hooks
        return made


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
    often as there are; but where operators take lists of parameters, as PyTorch's of many tensors
    and the vendor's fused ones do, all of them run. What an optimizer keeps is taken to be there
    before the program begins, as it is from the second step on.

    Raises
    ------
    EstimateError
        The optimizer needs what only real numbers tell, or does not take these parameters.
    """
    everyone = list(parameters)
    if isinstance(make, _Like):
        everyone = make.stepped(everyone)
    alike: dict[tuple[Any, ...], list[nn.Parameter]] = defaultdict(list)
    for one in everyone:
        group = make.group_of(one) if isinstance(make, _Like) else 0
        alike[(tuple(one.shape), one.stride(), one.dtype, group)].append(one)
    try:
        steps = [_Step(make, recorder, [group[0]], len(group)) for group in alike.values()]
        if len(everyone) > 1 and any(step.takes_lists for step in steps):
            steps = [_Step(make, recorder, everyone, 1)]
        for step in steps:
            step.hold()
        for step in steps:
            step.record()
    except (DataDependentOutputException, DynamicOutputShapeException, TypeError) as error:
        raise EstimateError(
            f"A step of this optimizer cannot be traced without numbers ({error}): give "
            'another, such as optimizer="adamw" for its memory, or None.'
        ) from error
    except (ValueError, RuntimeError) as error:
        raise EstimateError(
            f"The optimizer refuses the model's parameters ({error}): give an instance over those "
            "that it takes, another, or None."
        ) from error


class _Step:
    """A step of an optimizer over parameters, each of which stands for `count`."""

    def __init__(
        self, make: Make, recorder: Recorder, parameters: list[nn.Parameter], count: int
    ) -> None:
        self._recorder, self._count = recorder, count
        # Parameters of its own: the memory of the model's and of gradients is counted already.
        self.takes_lists = False
        with recorder.instead(self._look_for_lists):
            self._stand_ins = [_stand_in(one) for one in parameters]
            self._optimizer = make(self._stand_ins)
            self._optimizer.step()

    def _look_for_lists(self, _: Any, args: tuple[Any, ...], *__: Any) -> None:
        for one in args:
            if isinstance(one, list | tuple) and one and isinstance(one[0], torch.Tensor):
                self.takes_lists = True

    def hold(self) -> None:
        """Make known what is there before the second step."""
        recorder = self._recorder
        for one in self._stand_ins:
            assert one.grad is not None
            recorder.stand_for(one)
            recorder.stand_for(one.grad)
        groups = [{**one, "params": ()} for one in self._optimizer.param_groups]
        for value in _tensors([*self._optimizer.state.values(), *groups]):
            if value.device.type == device_type():
                recorder.hold(value, Role.OPTIMIZER, count=self._count)

    def record(self) -> None:
        """Record the second step, for which the first has left its state."""
        recorder = self._recorder
        recorder.phase, recorder.times = Phase.OPTIMIZER, self._count
        try:
            self._optimizer.step()
        finally:
            recorder.phase, recorder.times = None, 1


def _stand_in(parameter: nn.Parameter) -> nn.Parameter:
    made = nn.Parameter(torch.empty_like(parameter))
    vars(made).update(vars(parameter))
    made.grad = torch.empty_like(parameter)
    return made


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
