"""Iterators that return the batches of a pipeline as PyTorch tensors on its device."""

from __future__ import annotations

from typing import Any

import torch
from habana_frameworks.mediapipe.mediapipe import MediaPipe


class HPUGenericPytorchIterator:
    """Iterates over the batches of a pipeline; each batch is a list of outputs.

    ``iter()`` starts an epoch.

    Parameters
    ----------
    mediapipe : MediaPipe
        The pipeline, which the iterator builds.

    Raises
    ------
    TypeError
        `mediapipe` is not a pipeline.
    """

    def __init__(self, mediapipe: MediaPipe) -> None:
        if not isinstance(mediapipe, MediaPipe):
            raise TypeError(
                f"mediapipe is a {type(mediapipe).__name__}; pass an object of a class derived "
                "from MediaPipe."
            )
        self.pipe = mediapipe
        mediapipe.build()

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self.pipe)

    def __iter__(self) -> HPUGenericPytorchIterator:
        self.pipe.iter_init()
        return self

    def __next__(self) -> list[Any]:
        outputs = self.pipe.run()
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        return [
            self._output(each.as_subclass(torch.Tensor)) if isinstance(each, torch.Tensor) else each
            for each in several
        ]

    def _output(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


class _WithLabels(HPUGenericPytorchIterator):
    def _output(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return int32 tensors as int64, which PyTorch's losses require for labels."""
        return tensor.long() if tensor.dtype is torch.int32 else tensor


class HPUResnetPytorchIterator(_WithLabels):
    """Iterates over images and labels; labels are assumed to be int64."""


class HPUSsdPytorchIterator(_WithLabels):
    """Iterates over the outputs of a pipeline with a COCO reader.

    Assumption: the outputs are those of ``definegraph``, with int64 ids, sizes, labels and lengths.
    """
