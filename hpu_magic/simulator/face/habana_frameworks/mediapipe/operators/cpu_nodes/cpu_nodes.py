"""Base classes of functions that run on the host."""

from __future__ import annotations

from typing import Any


class media_function:
    """Base class of the functions that `fn.MediaFunc` calls.

    A subclass receives the parameters of the operator as a dictionary and returns a NumPy array on
    each call, one per batch.
    """

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params

    def __call__(self) -> Any:
        """Return the elements for a batch."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define __call__; define it, and return a NumPy array."
        )


class media_ext_cpu_op_impl:
    """Base class of the functions that `fn.MediaExtCpuOp` calls.

    Assumption: the constructor has the parameters of `media_ext_reader_op_impl`, and each call
    receives one NumPy array (a list for encoded images) per input.
    """

    def __init__(self, params: dict[str, Any], fw_params: Any) -> None:
        self.params, self.fw_params = params, fw_params

    def __call__(self, *inputs: Any) -> Any:
        """Return an array, or a tuple with an array per output."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define __call__; define it, and return an array per "
            "output."
        )
