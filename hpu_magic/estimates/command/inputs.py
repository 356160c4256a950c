"""Parse model inputs that are described on the command line, such as ``8x512:int64``."""

from __future__ import annotations

import re
from typing import Any

import torch

from hpu_magic.errors import suggestion
from hpu_magic.estimates.errors import EstimateError

_PART = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>[0-9]+(?:x[0-9]+)*)(?::(?P<dtype>\w+))?")
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


def parse_inputs(text: str) -> tuple[Any, ...]:
    """Return meta tensors, or a dict of meta tensors if the inputs have names.

    ``text`` is a comma-separated list of shapes. Each shape has an optional dtype after a colon
    (float32 by default) and an optional name, as in ``8x3x224x224`` or
    ``input_ids=8x512:int64,mask=8x512:int64``.
    """
    named: list[tuple[str | None, torch.Tensor]] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _PART.fullmatch(part)
        if match is None:
            raise EstimateError(
                f"--inputs {part!r} is not a shape: use sizes and a type, such as 8x512:int64 or "
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
        raise EstimateError(f"--inputs {text!r} names only some of the inputs: name all or none.")
    return tuple(tensor for _, tensor in named)


def _dtype(name: str | None) -> torch.dtype:
    if name is None:
        return torch.float32
    if name not in _DTYPES:
        fix = suggestion(name, _DTYPES) or f"use one of {', '.join(_DTYPES)}."
        raise EstimateError(f"Unknown type {name!r}: {fix}")
    return _DTYPES[name]
