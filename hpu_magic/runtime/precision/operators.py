"""The operator lists of HPU autocast: the library's defaults, and replacements for them.

Under autocast, an operator in the lower-precision list is computed in the autocast dtype, an
operator in the fp32 list in float32, and an operator in the promote list in the widest dtype of its
inputs. If a name is in several lists, the first of these lists applies. Operators that are in none
of the lists are not cast. When the library is loaded, it reads replacements for the first two lists
from files with one name per line.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hpu_magic.errors import HPUError, suggestion
from hpu_magic.runtime.device import device
from hpu_magic.runtime.start import first_import, restart

LOWER_VARIABLE = "PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST"
FP32_VARIABLE = "PT_HPU_AUTOCAST_FP32_OPS_LIST"
# Names used by earlier releases, which apply if the current names are not set.
_OLDER = {LOWER_VARIABLE: "LOWER_LIST", FP32_VARIABLE: "FP32_LIST"}

_DATA = Path(__file__).with_name("autocast_operators.txt")


def _sections() -> dict[str, frozenset[str]]:
    sections: dict[str, frozenset[str]] = {}
    for line in _DATA.read_text().splitlines():
        title, colon, names = line.partition(":")
        if colon and not title.startswith("#"):
            sections[title] = sections.get(title, frozenset()) | frozenset(names.split())
    return sections


_DEFAULTS = _sections()
MATRIX = _DEFAULTS["matrix"]
LOWER = MATRIX | _DEFAULTS["lower"]
FP32 = _DEFAULTS["fp32"]
PROMOTE = _DEFAULTS["promote"]
KNOWN = LOWER | FP32 | PROMOTE


class RestartNeededError(HPUError):
    """Operator lists other than the loaded ones were requested and have been stored."""


@dataclass(frozen=True)
class OperatorLists:
    """The two operator lists that can be replaced."""

    lower: frozenset[str] = LOWER
    fp32: frozenset[str] = FP32

    def describe(self) -> str:
        """Return a one-line description of the lists."""
        parts = [
            f"{label}: the default list"
            if chosen == default
            else f"{label}: {' '.join(sorted(chosen)) or 'nothing'}"
            for label, chosen, default in (
                ("lower precision", self.lower, LOWER),
                ("fp32", self.fp32, FP32),
            )
        ]
        return "; ".join(parts)


# Operators that are listed under their Python name or an older name.
_LISTED_AS = {
    "true_divide": ("truediv",),
    "div": ("truediv",),
    "divide": ("div",),
    "add_": ("iadd",),
    "multiply": ("mul",),
    "subtract": ("sub",),
}


def list_of(operator: str, lists: OperatorLists) -> str | None:
    """Return the list that applies to an operator, "lower", "fp32" or "promote", or None.

    ``operator`` is its name in PyTorch's dispatcher without the namespace: "linear" or "add_".
    """
    names = {operator, *_LISTED_AS.get(operator, ())}
    for kind, chosen in (("lower", lists.lower), ("fp32", lists.fp32), ("promote", PROMOTE)):
        if not chosen.isdisjoint(names):
            return kind
    return None


def in_force() -> OperatorLists:
    """Return the lists that the library has read, or will read when it is loaded."""
    environment = first_import.environment_at_import() if device.bridge_loaded() else os.environ
    lower, fp32 = (
        environment.get(name) or environment.get(older) for name, older in _OLDER.items()
    )
    return OperatorLists(_from_file(lower, LOWER), _from_file(fp32, FP32))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark


def _from_file(path: str | None, default: frozenset[str]) -> frozenset[str]:
    try:
        return frozenset(_text(Path(path)).split()) if path else default
    except (OSError, UnicodeDecodeError):
        # The library warns about this file and uses its default list.
        return default


def requested(
    lower: str | Iterable[str] | None = None,
    fp32: str | Iterable[str] | None = None,
    level: str | None = None,
) -> OperatorLists:
    """Return the requested lists.

    ``lower`` and ``fp32`` are operator names: an iterable, a comma-separated string, or the path of
    a file with one name per line. "default" stands for the library's list, and None for the loaded
    list. ``level`` is a level from the former Habana mixed precision package: O1 uses the lists,
    and O2 computes only matmuls and convolutions in lower precision, and all other operators
    in fp32.

    Raises `HPUError` for an unknown operator or level, an unreadable file, or the combination of O2
    with lists.
    """
    if level not in (None, "O1", "O2"):
        raise HPUError(f"Unknown level {level!r}: use O1 (operator lists) or O2.")
    if level == "O2":
        if lower is not None or fp32 is not None:
            raise HPUError("Level O2 has its own lists: remove lower and fp32, or use O1.")
        return OperatorLists(MATRIX, KNOWN - MATRIX)
    # O1 without lists means the default lists, not the loaded ones.
    base = OperatorLists() if level == "O1" else in_force()
    chosen_lower = base.lower if lower is None else _names(lower, LOWER)
    chosen_fp32 = base.fp32 if fp32 is None else _names(fp32, FP32)
    both = sorted(chosen_lower & chosen_fp32) if lower is not None and fp32 is not None else []
    if both:
        raise HPUError(f"{', '.join(both)} cannot be in both lists: remove it from one.")
    return OperatorLists(chosen_lower, chosen_fp32)


def _names(request: str | Iterable[str], default: frozenset[str]) -> frozenset[str]:
    if isinstance(request, str):
        path = Path(request).expanduser()
        if request == "default":
            return default
        # Treat the request as a path if it exists, contains a separator or has a suffix.
        if "," not in request and (path.is_file() or os.sep in request or path.suffix):
            try:
                request = _text(path).split("\n")
            except (OSError, UnicodeDecodeError) as error:
                raise HPUError(f"The operator list {request!r} cannot be read: {error}.") from None
        else:
            request = request.split(",")
    names = frozenset(name.strip() for name in request if name.strip())
    for name in sorted(names):
        if not _is_operator(name):
            fix = suggestion(name, KNOWN) or "use names such as linear, softmax or exp."
            raise HPUError(f"Unknown operator {name!r}: {fix}")
    if not names:
        raise HPUError("The operator list is empty: use names such as linear,softmax.")
    return names


def _is_operator(name: str) -> bool:
    if name in KNOWN:
        return True
    if not name.isidentifier() or name.startswith("__"):
        return False
    import torch

    return isinstance(getattr(torch.ops.aten, name, None), torch._ops.OpOverloadPacket)


def ensure(lists: OperatorLists) -> None:
    """Set the lists before the library is imported, or store them for the next start.

    Raises `RestartNeededError` if the library has been loaded with other lists.
    """
    if lists == in_force():
        return
    environment = {
        LOWER_VARIABLE: _file(LOWER_VARIABLE, lists.lower, LOWER),
        FP32_VARIABLE: _file(FP32_VARIABLE, lists.fp32, FP32),
    }
    if not device.bridge_loaded():
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        restart.remember(environment)
        return
    restart.remember(environment)
    if not restart.interactive():
        settings = " ".join(f"{name}={value}" for name, value in environment.items() if value)
        raise RestartNeededError(
            f"Operator lists are read only once, at import: start python with "
            f"{settings or f'neither {LOWER_VARIABLE} nor {FP32_VARIABLE}'}."
        )
    raise RestartNeededError(
        "Operator lists are read only once, at import, and different lists are already loaded: "
        "restart the kernel (or add --restart) and run the cell again. The new lists are "
        "remembered."
    )


def _file(variable: str, names: frozenset[str], default: frozenset[str]) -> str | None:
    """Write the names to a file for the library; return its path, or None if no file is needed."""
    if names == default and not os.environ.get(_OLDER[variable]):
        return None
    from jupyter_core.paths import jupyter_data_dir

    text = "\n".join(sorted(names)) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = Path(jupyter_data_dir()) / "hpu_magic" / "operators" / f"{digest}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)
