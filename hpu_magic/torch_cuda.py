"""The table of torch.cuda names, shared by the conversion of CUDA code and GPU migration."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

MATCH = "hpu_match"
MODIFIED = "hpu_modified"
MISMATCH = "hpu_mismatch"


class CudaName(NamedTuple):
    """A row of ``torch_cuda.tsv``; the file describes the columns."""

    name: str  # relative to torch.cuda
    category: str  # `MATCH`, `MODIFIED` or `MISMATCH`
    counterpart: str
    why: str
    ported: str = ""
    ported_why: str = ""


@functools.cache
def names() -> tuple[CudaName, ...]:
    """Return the rows in the order of the table."""
    text = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return tuple(CudaName(name, f"hpu_{category}", *rest) for name, category, *rest in rows)
