"""Explain why a capture was refused: the operation, the user's line, and the fix."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from hpu_magic.runtime.device import device
from hpu_magic.runtime.present.report import Report, Row

_READ = (
    "the host waits for a device value here, but a replay does not run Python: move the line out "
    "of the capture, and read the graph's outputs after the capture."
)
_SHAPE = (
    "the shape of the result depends on tensor values, but a graph has fixed shapes: use a mask "
    "of fixed shape (torch.where), or move the line out of the capture."
)
_FALLBACK = (
    "the operation runs on the CPU, but a graph can contain only device operations: move the line "
    "out of the capture, or use an operator that the device supports."
)
# transformers reads masks on the host so that it can omit masks without padding; its
# eager attention never omits a mask.
_MASK = (
    "transformers reads the attention mask on the host: call "
    "model.set_attn_implementation('eager') and pass attention_mask to the model, or pass a "
    "four-dimensional mask. For inference, use %hpu_wrap, which avoids reading the mask."
)
_COLLECTIVE = (
    "collectives can be captured if PT_HPU_ENABLE_LAZY_COLLECTIVES=true is set before torch is "
    "imported: set it in all ranks and restart, or move the line out of the capture."
)
_OTHER = "move the line out of the capture."


@dataclass(repr=False)
class CaptureRefusal(Report):
    """A capture that the device refused, with the reason and the fix."""

    name: str
    operator: str  # the operation that failed, such as ``aten::_local_scalar_dense``
    lines: list[tuple[str, int, str]]
    """File, line number and text of the user's lines, outermost first."""
    reason: str  # the first line of the device's error message
    fix: str  # how to change the code

    @classmethod
    def of(cls, name: str, operator: Any, error: RuntimeError) -> CaptureRefusal | None:
        """Explain an error that ``operator`` (an overload) raised while capturing graph ``name``.

        Returns None if the error is unrelated to the capture.
        """
        fix = _fix(operator, str(error))
        if fix is None:
            return None
        if fix == _READ and _is_in_mask_code(error.__traceback__):
            fix = _MASK
        reason = str(error).strip().splitlines()
        return cls(
            name,
            str(operator.name()),
            _users_lines(error.__traceback__),
            reason[0] if reason else type(error).__name__,
            fix,
        )

    def title(self) -> str:
        """Return the headline."""
        return f"Graph {self.name} was not captured on {device.label()}"

    def rows(self) -> Sequence[Row]:
        """Return the lines, the operation and the reason."""
        shown = [(f"line {line}", text) for _, line, text in self.lines]
        return [*shown, ("operation", self.operator), ("refused", self.reason)]

    def notes(self) -> Sequence[str]:
        """Return the fix."""
        return (f"Fix: {self.fix}",)


def _fix(operator: Any, text: str) -> str | None:
    import torch

    tags = operator.tags
    if torch.Tag.dynamic_output_shape in tags:
        return _SHAPE
    if "fallback" in text:
        return _FALLBACK
    if operator.namespace == "c10d":
        return _COLLECTIVE if "captur" in text.lower() else None
    copies = operator.overloadpacket.__name__ in ("_to_copy", "copy_")
    if copies or torch.Tag.data_dependent_output in tags:
        return _READ
    return _OTHER if "captur" in text.lower() else None


def _is_in_mask_code(traceback: TracebackType | None) -> bool:
    """Return whether the traceback contains a transformers function that creates masks."""
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if module.startswith("transformers.") and "mask" in module.rpartition(".")[2]:
            return True
        traceback = traceback.tb_next
    return False


def _users_lines(traceback: TracebackType | None) -> list[tuple[str, int, str]]:
    """Return the cell's line and, if different, the user's innermost line.

    PyTorch's frames below that line are removed from the traceback, because they do not help the
    user.
    """
    lines: list[tuple[str, int, str]] = []
    innermost = traceback
    while traceback is not None:
        frame = traceback.tb_frame
        if not lines or frame.f_globals.get("__name__") == "__main__":
            file, line = frame.f_code.co_filename, traceback.tb_lineno
            lines.append((file, line, linecache.getline(file, line).strip()))
            innermost = traceback
        traceback = traceback.tb_next
    if innermost is not None:
        innermost.tb_next = None
    return [lines[0], *lines[-1:]] if len(lines) > 1 else lines
