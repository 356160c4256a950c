"""What quantization changes in the output of each layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from hpu_magic.runtime.precision.fp8.step import Layer


@dataclass
class Difference:
    """How far values are from their references, over any number of tensors.

    Attributes
    ----------
    squares : float
        Sum of the squared differences.
    reference : float
        Sum of the squared references.
    largest : float
        The largest difference.
    tensors : int
        How many tensors were compared.
    """

    squares: float = 0.0
    reference: float = 0.0
    largest: float = 0.0
    tensors: int = 0

    def add(self, found: Any, expected: Any) -> None:
        """Take in what was found where something was expected: tensors, or containers of them."""
        for one, other in zip(_tensors(found), _tensors(expected), strict=False):
            if other.numel() and one.shape == other.shape:
                self.tensors += 1
                difference = one.float() - other.float()
                self.squares += float(difference.square().sum())
                self.reference += float(other.float().square().sum())
                largest = float(difference.abs().max())
                self.largest = largest if math.isnan(largest) else max(self.largest, largest)

    @property
    def relative(self) -> float:
        """The norm of the difference over the norm of the reference."""
        if self.squares == 0:
            return 0.0
        return math.sqrt(self.squares / self.reference) if self.reference else math.inf

    @property
    def sqnr(self) -> float:
        """Signal to quantization noise, in decibels."""
        return -20 * math.log10(self.relative) if self.relative else math.inf


@dataclass
class LayerError:
    """What quantization changes in a layer's output.

    Attributes
    ----------
    name, kind : str
        The layer and its class.
    total : Difference
        With all layers quantized: errors of the layers before it are in its input.
    own : Difference
        Of this layer alone, given what it is given in the model before quantization.
    calls : int
        How often the sample reaches it.
    """

    name: str
    kind: str
    total: Difference = field(default_factory=Difference)
    own: Difference = field(default_factory=Difference)
    calls: int = 0


@dataclass
class _Call:
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    output: Any


class Reference:
    """A run of the model as it is before quantization, to compare another run with.

    Parameters
    ----------
    model : torch.nn.Module
        It stays as it is.
    layers : iterable of Layer
        Those that are to be quantized.
    run : callable
        Calls the model that it is given.
    """

    def __init__(self, model: Any, layers: Iterable[Layer], run: Callable[[Any], Any]) -> None:
        self._layers, self._run = list(layers), run
        with _recorded(model, [name for name, _ in self._layers]) as self._calls:
            self._output = _copied(_without_gradients(run, model))

    def compare(self, model: Any) -> tuple[list[LayerError], Difference]:
        """Run the quantized model and return the errors of its layers and of its output."""
        with _recorded(model, [name for name, _ in self._layers]) as calls:
            output = _without_gradients(self._run, model)
        whole = Difference()
        whole.add(output, self._output)
        errors = []
        for name, kind in self._layers:
            error = LayerError(name, kind, calls=len(self._calls[name]))
            layer = model.get_submodule(name)
            for before, after in zip(self._calls[name], calls[name], strict=False):
                error.total.add(after.output, before.output)
                alone = _without_gradients(
                    lambda of, call: of(*call.arguments, **call.named), layer, before
                )
                error.own.add(alone, before.output)
            errors.append(error)
        return errors, whole


@contextmanager
def _recorded(model: Any, names: Iterable[str]) -> Iterator[dict[str, list[_Call]]]:
    """Record what goes into layers and what comes out, before others write over it."""
    calls: dict[str, list[_Call]] = {name: [] for name in names}

    def before(name: str) -> Any:
        def note(module: Any, arguments: Any, named: Any) -> None:
            calls[name].append(_Call(_copied(arguments), _copied(named), None))

        return note

    def after(name: str) -> Any:
        def note(module: Any, arguments: Any, output: Any) -> None:
            calls[name][-1].output = _copied(output)

        return note

    with ExitStack() as stack:
        for name in calls:
            layer = model.get_submodule(name)
            for handle in (
                layer.register_forward_pre_hook(before(name), with_kwargs=True),
                layer.register_forward_hook(after(name)),
            ):
                stack.callback(handle.remove)
        yield calls


def _without_gradients(run: Callable[..., Any], *arguments: Any) -> Any:
    import torch

    with torch.no_grad():
        return run(*arguments)


def _copied(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: _copied(one) for key, one in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_copied(one) for one in value)
    return value


def _tensors(value: Any) -> Iterator[Any]:
    """Yield the floating-point tensors of an output."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
