"""Rules for the dtype in which an operator computes; lists take precedence over input dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

BF16 = frozenset({"addmm", "bmm", "conv1d", "conv2d", "conv3d", "dot", "mm", "mv"})
"""Operators that compute in bfloat16 at level O1, unless a file replaces the list."""
FP32 = frozenset({"batch_norm", "cross_entropy", "log_softmax", "nll_loss", "softmax", "topk"})
"""Operators that compute in float32 at level O1, unless a file replaces the list."""
PRODUCTS = BF16 | {
    "addbmm",
    "baddbmm",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "linear",
    "matmul",
}
"""Operators that compute in bfloat16 at level O2: matmuls and convolutions."""
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
"""Operators that take several tensors and compute in the widest dtype of these tensors."""

# The device computes these matmuls with a different operator, so that operator's list applies.
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
    """The current lists; if `all_others_fp32` is true, all other operators compute in float32."""

    bf16: frozenset[str] = BF16
    fp32: frozenset[str] = FP32
    all_others_fp32: bool = False

    def dtype(
        self, name: str, inputs: Sequence[torch.dtype], in_place: bool
    ) -> tuple[torch.dtype, str]:
        """Return the dtype in which an operator computes, and a description of the rule used.

        `name` has no underscores. `inputs` contains the dtypes of the operator's float32 and
        bfloat16 tensors, and must not be empty; if `in_place` is true, the first dtype is the dtype
        of the tensor that the operator writes to.
        """
        if in_place:
            return inputs[0], "type of its output"
        for known in _names(name):
            if known in self.bf16:
                return torch.bfloat16, "bf16 list"
            if known in self.fp32:
                return torch.float32, "fp32 list"
        if self.all_others_fp32:
            return torch.float32, "not in a list: float32 at level O2"
        if any(known in WIDENING for known in _names(name)):
            widest = torch.float32 if torch.float32 in inputs else torch.bfloat16
            return widest, "several tensors: the widest type"
        return inputs[0], "not in a list: the type of its first input"


def _names(name: str) -> list[str]:
    """Return the names that the lists may use for an operator, starting with its own name."""
    name = _REFLECTED.get(name, name)
    others = (_SPELLINGS.get(name), _COMPUTED_BY.get(name))
    return [name, *(each for each in others if each)]
