"""The inputs that a command's line describes: ``8x512:int64``."""

from __future__ import annotations

import re
from typing import Any

import torch

from hpu_magic.errors import suggestion
from hpu_magic.estimates.errors import EstimateError

_ONE = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>[0-9]+(?:x[0-9]+)*)(?::(?P<dtype>\w+))?")
_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
    "float": torch.float32,
    "long": torch.int64,
    "int": torch.int32,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


def inputs_described(text: str) -> tuple[Any, ...]:
    """Return tensors without memory, or one dict of them where they have names.

    Parameters
    ----------
    text : str
        Shapes with commas between, each with a type after a colon (float32 by default) and perhaps
        a name before it: ``8x3x224x224``, ``input_ids=8x512:int64,attention_mask=8x512:int64``.

    Raises
    ------
    EstimateError
        One of them means nothing, or some have names and others none.
    """
    named: list[tuple[str | None, torch.Tensor]] = []
    for one in filter(None, (part.strip() for part in text.split(","))):
        match = _ONE.fullmatch(one)
        if match is None:
            raise EstimateError(
                f"--inputs {one!r} is no shape: write sizes and a type, as 8x512:int64 or "
                "mask=8x512:bool."
            )
        sizes = [int(size) for size in match["shape"].split("x")]
        named.append(
            (match["name"], torch.empty(sizes, dtype=_dtype(match["dtype"]), device="meta"))
        )
    names = [name for name, _ in named]
    if not named or None not in names:
        return (dict(named),) if named else ()
    if any(names):
        raise EstimateError(f"--inputs {text!r}: give all inputs a name, or none.")
    return tuple(tensor for _, tensor in named)


def _dtype(name: str | None) -> torch.dtype:
    if name is None:
        return torch.float32
    if name not in _DTYPES:
        mend = suggestion(name, _DTYPES) or f"give one of {', '.join(_DTYPES)}."
        raise EstimateError(f"There is no type {name!r}: {mend}")
    return _DTYPES[name]
