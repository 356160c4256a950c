"""The class from which programs derive their pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from habana_frameworks.mediapipe._graph import (
    Edge,
    Operator,
    Reader,
    Settings,
    Value,
    operators_of,
    require_device,
)


class _Output(torch.Tensor):
    """An output of a pipeline, with additional methods; operations on it return plain tensors."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def as_cpu(self) -> torch.Tensor:
        """Return a copy on the host."""
        return self.cpu().as_subclass(_Output)

    def as_nparray(self) -> np.ndarray[Any, Any]:
        """Return a NumPy array; bfloat16 becomes float32, because NumPy does not have bfloat16."""
        host = self.cpu()
        return (host.float() if host.dtype is torch.bfloat16 else host).numpy()


class MediaPipe:
    """A graph of readers, decoders and transforms that computes batches.

    A subclass creates its operators in `__init__` and connects them in `definegraph`. Batches are
    computed when they are requested; `prefetch_depth` and `num_threads` have no effect.

    Parameters
    ----------
    device : str, optional
        ``"cpu"`` leaves the outputs on the host. Other devices, such as ``"mixed"``, ``"legacy"``
        and ``"hpu"``, copy them to the device (assumption: also if it is None).
    prefetch_depth : int
        Number of batches that a card computes in advance.
    batch_size : int
        Number of images in each batch.
    num_threads : int
        Number of host threads that a card's pipeline uses.
    pipe_name : str, optional
        Name in messages.

    Raises
    ------
    ValueError
        The device is unknown, or a number is not positive.
    """

    def __init__(
        self,
        device: str | None = None,
        prefetch_depth: int = 1,
        batch_size: int = 1,
        num_threads: int = 1,
        pipe_name: str | None = None,
    ) -> None:
        require_device(device, type(self).__name__)
        numbers = {"prefetch_depth": prefetch_depth, "batch_size": batch_size}
        for name, number in {**numbers, "num_threads": num_threads}.items():
            if not isinstance(number, int) or number < 1:
                raise ValueError(f"{name} must be a positive integer, got {number!r}.")
        self._device = "cpu" if device == "cpu" else "hpu"
        self._batch_size = batch_size
        self._pipe_name = pipe_name or type(self).__name__
        self._outputs: tuple[Edge, ...] = ()
        self._operators: list[Operator] = []
        self._is_started = False

    def definegraph(self) -> Any:
        """Connect the operators, and return the outputs; a subclass defines this method."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define definegraph; define it, and return the "
            "pipeline's outputs."
        )

    def getBatchSize(self) -> int:
        """Return the number of images in each batch."""
        return self._batch_size

    def build(self) -> None:
        """Create the graph and prepare its operators; a second call has no effect.

        Raises
        ------
        TypeError
            `definegraph` returned something other than outputs of operators.
        ValueError
            The graph has no reader.
        """
        if self._operators:
            return
        returned = self.definegraph()
        outputs = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
        for output in outputs:
            if not isinstance(output, Edge):
                raise TypeError(
                    f"definegraph of {self._pipe_name} returned a {type(output).__name__}; "
                    "return the outputs of operators."
                )
        operators = list(operators_of(outputs))
        if not any(isinstance(operator, Reader) for operator in operators):
            raise ValueError(
                f"{self._pipe_name} has no reader; use fn.ReadImageDatasetFromDir, fn.CocoReader "
                "or fn.MediaExtReaderOp."
            )
        for operator in operators:
            operator.prepare(Settings(self._batch_size))
        self._outputs, self._operators = outputs, operators

    def iter_init(self) -> None:
        """Start an epoch.

        Raises
        ------
        RuntimeError
            The pipeline has not been built.
        """
        self._require_built()
        for reader in self._readers():
            reader.start()
        self._is_started = True

    def run(self) -> Any:
        """Return the outputs of `definegraph` for the next batch, as a tensor or a tuple.

        The outputs are PyTorch tensors on the device, with the additional methods ``as_cpu()`` and
        ``as_nparray()``. Outputs of type ``NDT`` are lists.

        Raises
        ------
        StopIteration
            The epoch has ended.
        RuntimeError
            The epoch has not been started with `iter_init`.
        """
        self._require_built()
        if not self._is_started:
            raise RuntimeError(f"{self._pipe_name} has not started an epoch; call iter_init().")
        values: dict[Operator, tuple[Value, ...]] = {}
        for operator in self._operators:
            inputs = [values[edge.operator][edge.index] for edge in operator.edges]
            values[operator] = operator.compute(*inputs)
        made = tuple(self._moved(values[edge.operator][edge.index]) for edge in self._outputs)
        return made[0] if len(made) == 1 else made

    def _moved(self, value: Value) -> Any:
        if not isinstance(value.data, torch.Tensor):
            return value.data
        return value.data.to(self._device).as_subclass(_Output)

    def _readers(self) -> list[Reader]:
        return [operator for operator in self._operators if isinstance(operator, Reader)]

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        self._require_built()
        return min(map(len, self._readers()))

    def _require_built(self) -> None:
        if not self._operators:
            raise RuntimeError(f"{self._pipe_name} has not been built; call build().")
