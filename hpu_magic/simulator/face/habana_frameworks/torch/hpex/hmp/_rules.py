"""In which type an operator computes: by the lists, and by its inputs where they do not name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

BF16 = frozenset({"addmm", "bmm", "conv1d", "conv2d", "conv3d", "dot", "mm", "mv"})
"""What level O1 computes in bfloat16, unless a file says otherwise."""
FP32 = frozenset({"batch_norm", "cross_entropy", "log_softmax", "nll_loss", "softmax", "topk"})
"""What level O1 computes in float32, unless a file says otherwise."""
PRODUCTS = BF16 | {
    "addbmm",
    "baddbmm",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "linear",
    "matmul",
}
"""What level O2 computes in bfloat16: matrix products and convolutions."""
WIDENING = frozenset(
    {
        "add",
        "addcdiv",
        "addcmul",
        "cat",
        "concat",
        "div",
        "hstack",
        "maximum",
        "minimum",
        "mul",
        "rsub",
        "stack",
        "sub",
        "truediv",
        "vstack",
        "where",
    }
)
"""What takes several tensors, and computes in the widest of their types."""

# Products that the device computes by another: where no list names them they follow that one.
_COMPUTED_BY = {"linear": "addmm", "matmul": "mm"}
_REFLECTED = {f"r{name}": name for name in ("add", "div", "mul", "truediv", "matmul")}
_SPELLINGS = {
    "truediv": "div",
    "div": "truediv",
    "rsub": "sub",
    "cross_entropy_loss": "cross_entropy",
}


@dataclass(frozen=True)
class Rules:
    """The lists in force.

    Attributes
    ----------
    bf16, fp32 : frozenset of str
        Operators that compute in bfloat16 and in float32.
    all_others_fp32 : bool
        Whether every other operator computes in float32, too.
    """

    bf16: frozenset[str] = BF16
    fp32: frozenset[str] = FP32
    all_others_fp32: bool = False

    def dtype(
        self, name: str, inputs: Sequence[torch.dtype], in_place: bool
    ) -> tuple[torch.dtype, str]:
        """Return the type that an operator computes in, and the rule that says so.

        Parameters
        ----------
        name : str
            The operator's, without underscores.
        inputs : sequence of torch.dtype
            Types of its tensors in float32 or bfloat16, what it writes first; one or more.
        in_place : bool
            Whether it writes the first of them.
        """
        if in_place:
            return inputs[0], "the type of what it writes"
        for known in _names(name):
            if known in self.bf16:
                return torch.bfloat16, "bf16 list"
            if known in self.fp32:
                return torch.float32, "fp32 list"
        if self.all_others_fp32:
            return torch.float32, "in no list: float32 at level O2"
        if any(known in WIDENING for known in _names(name)):
            widest = torch.float32 if torch.float32 in inputs else torch.bfloat16
            return widest, "several tensors: the widest type"
        return inputs[0], "in no list: the type of its first input"


def _names(name: str) -> list[str]:
    """Return the names under which a list may have an operator, its own first."""
    name = _REFLECTED.get(name, name)
    further = (_SPELLINGS.get(name), _COMPUTED_BY.get(name))
    return [name, *(each for each in further if each)]
