"""The interface of readers that users implement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class media_ext_reader_op_tensor_info:
    """Type and shape of an output, with the fastest dimension first."""

    dtype: str
    shape: Sequence[int]
    layout: str = ""


class media_ext_reader_op_impl:
    """Base class of the readers that `fn.MediaExtReaderOp` uses.

    A subclass defines `__iter__`, which starts an epoch, `__next__`, which returns the outputs of
    a batch or raises ``StopIteration``, and `__len__`, the number of batches.

    Parameters
    ----------
    params : dict
        The parameters of the operator; ``params["priv_params"]`` contains the user's own.
    fw_params : object
        Settings of the pipeline, such as ``batch_size``.
    """

    def __init__(self, params: dict[str, Any], fw_params: Any) -> None:
        self.params, self.fw_params = params, fw_params

    def gen_output_info(self) -> list[media_ext_reader_op_tensor_info]:
        """Return the type and shape of each output."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define gen_output_info; define it, and return a list "
            "with a media_ext_reader_op_tensor_info per output."
        )
