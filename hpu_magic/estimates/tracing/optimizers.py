"""Record an optimizer step; parameters of the same shape are traced only once if possible."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing.fake_card import device_type
from hpu_magic.estimates.tracing.program import Phase, Role
from hpu_magic.estimates.tracing.recorder import Recorder
from hpu_magic.estimates.tracing.twins import ORIGINAL
from hpu_magic.runtime.device import nests

_ON_HOST = ("step", "mu_product")
"""State that optimizers keep on the CPU, unless they are fused or can be captured."""

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def maker(optimizer: torch.optim.Optimizer | str | None) -> Make | None:
    """Return a function that creates an equivalent optimizer for other parameters.

    If ``optimizer`` is an instance, its class, parameter groups and options are used. A string
    names an optimizer from `torch.optim` or from the vendor, such as ``"FusedAdamW"``; case and
    underscores are ignored.
    """
    if optimizer is None:
        return None
    if isinstance(optimizer, torch.optim.Optimizer):
        return _Like(optimizer)
    if not isinstance(optimizer, str):
        raise EstimateError(
            f"optimizer is a {type(optimizer).__name__}: pass an optimizer, its name, or None."
        )
    found = _by_name(optimizer)
    return lambda parameters: found(parameters, lr=1e-3)


class _Like:
    """Creates optimizers with the groups and options of an existing one, but without its state."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        # If accelerate has wrapped the optimizer, unwrap it.
        inner = getattr(optimizer, "optimizer", None)
        self._optimizer = inner if isinstance(inner, torch.optim.Optimizer) else optimizer
        self._groups = {
            id(each): number
            for number, group in enumerate(self._optimizer.param_groups)
            for each in group["params"]
        }

    def group_of(self, parameter: nn.Parameter) -> int | None:
        """Return the group index of the parameter that a fake parameter replaces, or None."""
        return self._groups.get(id(getattr(parameter, ORIGINAL, None)))

    def stepped(self, parameters: list[nn.Parameter]) -> list[nn.Parameter]:
        """Return the optimizer's parameters, or all parameters if it has those of a copy."""
        own = [parameter for parameter in parameters if self.group_of(parameter) is not None]
        return own or parameters

    def __call__(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        groups = [{**group, "params": []} for group in self._optimizer.param_groups]
        for each in parameters:
            groups[self.group_of(each) or 0]["params"].append(each)
        groups = [group for group in groups if group["params"]]
        made: torch.optim.Optimizer = object.__new__(type(self._optimizer))
        vars(made).update(vars(self._optimizer), state=defaultdict(dict), param_groups=groups)
        vars(made).pop("step", None)  # a scheduler's wrapper, which calls the user's optimizer
        for name, value in vars(made).items():
            if name.startswith("_optimizer_") and isinstance(value, OrderedDict):
                vars(made)[name] = OrderedDict()  # the user's hooks
        return made


def group_of(make: Make | None, parameter: nn.Parameter) -> int:
    """Return the index of a parameter's group in the optimizer; 0 if it is not known."""
    return (make.group_of(parameter) or 0) if isinstance(make, _Like) else 0


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
            f"optimizer={name!r} is not in torch.optim or habana_frameworks: pass an "
            f"optimizer, None, or one of {', '.join(sorted(kinds))}."
        ) from None


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def record_step(
    make: Make,
    recorder: Recorder,
    parameters: Iterable[nn.Parameter],
    *,
    gradients: bool = False,
) -> None:
    """Record an optimizer step for parameters that have gradients.

    The step is the same for all parameters of the same shape and dtype, so it is traced for one of
    them, and its operations are counted for all. All parameters are traced if operators take lists
    of parameters, as PyTorch's multi-tensor operators and the vendor's fused operators do. The
    optimizer's state is assumed to exist before the program starts, as it does in every step except
    the first. If ``gradients`` is true, the gradients are added to the program as well.

    Raises `EstimateError` if the optimizer depends on tensor values or does not support these
    parameters.
    """
    everyone = list(parameters)
    if isinstance(make, _Like):
        everyone = make.stepped(everyone)
    alike: dict[tuple[Any, ...], list[nn.Parameter]] = defaultdict(list)
    for each in everyone:
        group = make.group_of(each) if isinstance(make, _Like) else 0
        alike[(tuple(each.shape), each.stride(), each.dtype, group)].append(each)
    try:
        steps = [_OptimizerStep(make, recorder, [group[0]], len(group)) for group in alike.values()]
        if len(everyone) > 1 and any(step.takes_lists for step in steps):
            steps = [_OptimizerStep(make, recorder, everyone, 1)]
        for step in steps:
            step.hold(gradients=gradients)
        for step in steps:
            step.record()
    except (DataDependentOutputException, DynamicOutputShapeException, TypeError) as error:
        raise EstimateError(
            f"The optimizer's step depends on tensor values ({error}): pass a different optimizer, "
            'such as optimizer="adamw", or None.'
        ) from error
    except (ValueError, RuntimeError) as error:
        raise EstimateError(
            f"The optimizer does not support the model's parameters ({error}): pass a different "
            "optimizer, an optimizer for other parameters, or None."
        ) from error


class _OptimizerStep:
    """An optimizer step; each of its parameters represents `count` parameters of the model."""

    def __init__(
        self, make: Make, recorder: Recorder, parameters: list[nn.Parameter], count: int
    ) -> None:
        self._recorder, self._count = recorder, count
        # Use copies, because the memory for the model's parameters and gradients is already
        # counted.
        self.takes_lists = False
        with recorder.instead(self._look_for_lists):
            self._stand_ins = [_stand_in(each) for each in parameters]
            self._optimizer = make(self._stand_ins)
            self._optimizer.step()

    def _look_for_lists(self, _: Any, args: tuple[Any, ...], *__: Any) -> None:
        for each in args:
            if isinstance(each, list | tuple) and each and isinstance(each[0], torch.Tensor):
                self.takes_lists = True

    def hold(self, *, gradients: bool) -> None:
        """Add the tensors that exist before the second step to the recorder."""
        recorder = self._recorder
        for each in self._stand_ins:
            assert each.grad is not None
            recorder.stand_for(each)
            if gradients:
                recorder.hold(each.grad, Role.GRADIENTS, count=self._count)
            else:
                recorder.stand_for(each.grad)
        self._leave_out_host_state()
        groups = [{**each, "params": ()} for each in self._optimizer.param_groups]
        for value in nests.tensors([*self._optimizer.state.values(), *groups]):
            if value.device.type == device_type() and not recorder.is_on_host(value):
                recorder.hold(value, Role.OPTIMIZER, count=self._count)

    def _leave_out_host_state(self) -> None:
        """Do not count the optimizer's state on the host, which a trace on the CPU would count."""
        groups = self._optimizer.param_groups
        # ASGD always counts its steps on the card.
        of_card = isinstance(self._optimizer, torch.optim.ASGD) or any(
            group.get("capturable") or group.get("fused") for group in groups
        )
        for state in self._optimizer.state.values() if not of_card else ():
            for name in _ON_HOST:
                if isinstance(state.get(name), torch.Tensor):
                    self._recorder.leave_on_host(state[name])

    def record(self) -> None:
        """Record the second step, which uses the state created by the first one."""
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
