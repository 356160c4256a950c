"""Conversion of CUDA code."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpu_magic.runtime.porting.report import PortReport


def from_cuda(code: str, *, mark_steps: bool | None = None) -> PortReport:
    """Convert CUDA code to Gaudi code, without changing comments or layout.

    Parameters
    ----------
    code : str
        Python code for CUDA.
    mark_steps : bool, optional
        Call mark_step() after each backward pass and optimizer step; by default, only in lazy mode.

    Returns
    -------
    PortReport
        ``ported`` is the converted code; ``findings`` lists code without a counterpart.

    Raises
    ------
    HPUError
        The code is not valid Python.
    """
    from hpu_magic.runtime.porting.port import port

    return port(code, mark_steps=mark_steps)
