"""Which forward pass of a module a checkpointed one repeats within backward."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch

from .recipe import DelayedScaling

_KEPT = 32


@dataclass(frozen=True)
class Use:
    """How one forward pass of a module computes, and the backward pass that belongs to it.

    Attributes
    ----------
    recipe : DelayedScaling
    scale : torch.Tensor
        Scales of the forward pass; the module's own go on where its region ends.
    hybrid_scale : torch.Tensor or None
        Those for casts to the type of the gradients.
    measures : bool
        Whether the gradients are measured.
    measures_forward : bool
        Whether inputs and weights are: not where a checkpointed forward pass runs again.
    has_backward : bool
        Whether autograd records it.
    out_dtype : torch.dtype
    group : torch.distributed.ProcessGroup or None
        The processes that agree on what is measured, None for all.
    """

    recipe: DelayedScaling
    scale: torch.Tensor
    hybrid_scale: torch.Tensor | None
    measures: bool
    measures_forward: bool
    has_backward: bool
    out_dtype: torch.dtype
    group: Any


class Uses:
    """The latest uses of a module, None for those without 8 bits.

    Autograd numbers its nodes in the order in which they are made, and a repeated forward pass runs
    within the backward of one of them. A reentrant checkpoint is a node itself, and its forward
    pass follows that node's number. Otherwise the node lies in the forward pass that is repeated,
    behind the module.
    """

    def __init__(self) -> None:
        self._noted: deque[tuple[int, Use | None]] = deque(maxlen=_KEPT)

    def note(self, use: Use | None) -> None:
        """Remember a forward pass that begins now."""
        self._noted.append((torch._C._autograd._get_sequence_nr(), use))

    def repeated(self) -> Use | None:
        """Return the use that belongs to the node whose backward runs."""
        noted = sorted(self._noted, key=itemgetter(0))
        node = torch._C._current_autograd_node()
        if node is None or not noted:
            return noted[-1][1] if noted else None
        reentrant = "Checkpoint" in node.name()
        behind = bisect_right(noted, node._sequence_nr(), key=itemgetter(0))
        _, use = noted[min(behind, len(noted) - 1) if reentrant else max(behind - 1, 0)]
        if reentrant:  # what is recorded now has a backward of its own, and may repeat it again
            self.note(use)
        return use

    def __reduce__(self) -> tuple[type[Uses], tuple[()]]:
        """Leave them behind: a copy of a module has no backward pass to come."""
        return Uses, ()
