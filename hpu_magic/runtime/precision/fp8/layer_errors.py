"""The error of each layer's output after quantization."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from hpu_magic.runtime.precision.fp8.step import Layer


@dataclass
class Difference:
    """The difference between tensors and their references, accumulated over all added tensors."""

    squares: float = 0.0  # sum of the squared differences
    reference: float = 0.0  # sum of the squared references
    largest: float = 0.0  # the largest difference
    tensors: int = 0  # number of tensors compared

    def add(self, values: Any, references: Any) -> None:
        """Add tensors or containers of tensors."""
        for value, reference in zip(_tensors(values), _tensors(references), strict=False):
            if reference.numel() and value.shape == reference.shape:
                self.tensors += 1
                difference = value.float() - reference.float()
                self.squares += float(difference.square().sum())
                self.reference += float(reference.float().square().sum())
                largest = float(difference.abs().max())
                self.largest = largest if math.isnan(largest) else max(self.largest, largest)

    @property
    def relative(self) -> float:
        """The norm of the difference divided by the norm of the reference."""
        if self.squares == 0:
            return 0.0
        return math.sqrt(self.squares / self.reference) if self.reference else math.inf

    @property
    def sqnr(self) -> float:
        """Signal-to-quantization-noise ratio in decibels."""
        return -20 * math.log10(self.relative) if self.relative else math.inf


@dataclass
class LayerError:
    """The error of a layer's output after quantization."""

    name: str
    kind: str
    """The name of the layer and its class."""
    total: Difference = field(default_factory=Difference)
    """The error with all layers quantized; it includes the errors of earlier layers."""
    own: Difference = field(default_factory=Difference)
    """The error of this layer alone, given the input that it had before quantization."""
    calls: int = 0  # number of times the layer was called with the sample


@dataclass
class _Call:
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    output: Any


class Reference:
    """A run of the model before quantization that serves as the reference for a later run.

    ``run`` is a function that calls the model passed to it. The model is not changed.
    """

    def __init__(self, model: Any, layers: Iterable[Layer], run: Callable[[Any], Any]) -> None:
        self._layers, self._run = list(layers), run
        with _recorded(model, [name for name, _ in self._layers]) as self._calls:
            self._output = _copied(_without_gradients(run, model))

    def compare(self, model: Any) -> tuple[list[LayerError], Difference]:
        """Run the quantized model and return the errors of its layers and its output."""
        with _recorded(model, [name for name, _ in self._layers]) as calls:
            output = _without_gradients(self._run, model)
        total = Difference()
        total.add(output, self._output)
        errors = []
        for name, kind in self._layers:
            error = LayerError(name, kind, calls=len(self._calls[name]))
            layer = model.get_submodule(name)
            for before, after in zip(self._calls[name], calls[name], strict=False):
                error.total.add(after.output, before.output)
                alone = _without_gradients(
                    lambda layer, call: layer(*call.arguments, **call.named), layer, before
                )
                error.own.add(alone, before.output)
            errors.append(error)
        return errors, total


@contextmanager
def _recorded(model: Any, names: Iterable[str]) -> Iterator[dict[str, list[_Call]]]:
    """Record copies of the inputs and outputs of layers, since later layers may overwrite them."""
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
    from hpu_magic.runtime.device import nests

    return nests.mapped(value, lambda tensor: tensor.detach().clone())


def _tensors(value: Any) -> Iterator[Any]:
    """Return an iterator over the floating-point tensors in an output."""
    from hpu_magic.runtime.device import nests

    return (tensor for tensor in nests.tensors(value) if tensor.is_floating_point())
