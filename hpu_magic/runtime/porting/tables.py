"""The tables of CUDA names and GPU packages, with their counterparts on the card."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from hpu_magic import torch_cuda as table

CUDA = "torch.cuda"


class Counterpart(NamedTuple):
    """The counterpart of a name in torch.cuda."""

    action: str
    """"name" if the counterpart is another name, "value" if calls have no effect and return a
    value, and "none" if there is no counterpart."""
    text: str  # the name or the value
    why: str  # an explanation; may be empty


@lru_cache(maxsize=1)
def torch_cuda() -> dict[str, Counterpart]:
    """Return the counterparts, keyed by name without the prefix ``torch.cuda.``."""
    return {
        row.name: _ported(row, row.ported or row.counterpart)
        for row in table.names()
        if row.ported != "unchanged"
    }


def _ported(row: table.CudaName, text: str) -> Counterpart:
    if row.category == table.MODIFIED:
        text, why = row.ported or f"torch.hpu.{row.name}", row.ported_why
    else:
        why = (row.ported_why or row.why).removeprefix("-")
    if text.startswith("torch."):
        return Counterpart("name", text, why)
    first = why.partition(" ")[0]
    if first.istitle():  # excludes names such as HPU and PyTorch
        why = why[0].lower() + why[1:]
    if text in ("none", "raises", "range", "as it is"):
        return Counterpart("none", "", why.rstrip("."))
    return Counterpart("value", text, why.rstrip("."))


@lru_cache(maxsize=1)
def packages() -> dict[str, str]:
    """Return the replacements for packages and functions that need a GPU."""
    text = Path(__file__).with_name("packages.tsv").read_text(encoding="utf-8")
    return dict(line.split("\t") for line in text.splitlines() if not line.startswith("#"))


def counterpart(name: str) -> Counterpart | None:
    """Return the counterpart of a dotted name, which may be in a private module of torch.cuda."""
    if not name.startswith(f"{CUDA}."):
        return None
    path = name.removeprefix(f"{CUDA}.").split(".")
    for short in (".".join(path), f"{path[0]}.{path[-1]}", path[-1]):
        if short in torch_cuda():
            return torch_cuda()[short]
    return None


def gpu_package(module: str) -> tuple[str, str] | None:
    """Return a package and its replacement if a module or function needs a GPU, or None."""
    for name, replacement in packages().items():
        if module == name or module.startswith(f"{name}."):
            return name, replacement
    return None
