"""Access to this process's device: its libraries, its card and its name."""

from __future__ import annotations

import os
import re
import sys
import time
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from hpu_magic import backend, holders
from hpu_magic.errors import HPUError, suggestion
from hpu_magic.runtime.start import restart

if TYPE_CHECKING:
    from hpu_magic.monitor import CardReading, Snapshot

_NO_CARD_TO_BE_HAD = re.compile(r"Device acquire failed\.(?!\s*No devices found)")
_PATIENCE = 10.0  # seconds
_LIBRARIES = ("torch", "habana_frameworks", "habana_frameworks.torch", "torch.hpu")

DTYPES = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float32": "float32",
    "float": "float32",
}


def bridge_loaded() -> bool:
    """Return whether the vendor's package, which reads its settings at import, is loaded."""
    torch = sys.modules.get("torch")
    return "habana_frameworks.torch" in sys.modules or hasattr(torch, "hpu")


def importing() -> bool:
    """Return whether torch or the vendor's package is being imported, possibly by another thread.

    Using a module that is being imported would block until the import has finished.
    """
    specs = (getattr(sys.modules.get(name), "__spec__", None) for name in _LIBRARIES)
    return any(getattr(spec, "_initializing", False) for spec in specs)


def taken() -> bool:
    """Return whether this process has acquired a card, without acquiring one."""
    hpu = getattr(sys.modules.get("torch"), "hpu", None)
    return hpu is not None and bool(hpu.is_initialized())


class Memory(NamedTuple):
    """Device memory of this process, in bytes."""

    in_use: int  # bytes in use now
    peak: int
    """Peak number of bytes in use since the last reset by any caller; see
    `hpu_magic.runtime.device.peak`."""
    limit: int  # size of the card's memory


def memory() -> Memory | None:
    """Return the device memory of this process, or None before it acquires a card.

    Raises RuntimeError if the card was lost.
    """
    if not taken():
        return None
    stats = sys.modules["torch"].hpu.memory_stats()
    return Memory(stats["InUse"], stats["MaxInUse"], stats["Limit"])


def in_use() -> int:
    """Return the number of bytes in use on the device, or 0 before a card is acquired."""
    current = memory()
    return current.in_use if current else 0


def torch_with_hpu() -> ModuleType:
    """Import torch and activate ``torch.hpu``; in a script, print the backend to stderr.

    Raises `HPUError` if neither the vendor's package nor the simulator can be used.
    """
    # In a notebook, the backend was already printed when the extension was loaded.
    silent = bridge_loaded() or restart.interactive()
    try:
        announcement = backend.activate()
        if not silent:
            print(f"hpu_magic: {announcement}", file=sys.stderr)
        import torch
        import torch.hpu  # type: ignore[import-not-found]
    except (ImportError, RuntimeError, ValueError) as error:
        raise HPUError(f"There is no hpu device in this process: {error}") from error
    return torch


def take(device: str = "hpu") -> ModuleType:
    """Acquire a card if the process has none yet, and return torch.

    The index in ``hpu:3`` selects the card. If no card can be acquired, raises an `HPUError` with
    the vendor's message and, if known, the processes that hold the cards.
    """
    torch = torch_with_hpu()
    try:
        torch.empty(0, device=device)
        torch.hpu.init()
    except RuntimeError as error:
        raise HPUError(_with_holders(str(error))) from error
    return torch


def _with_holders(refusal: str) -> str:
    """Add the processes that hold the cards to the vendor's message unless it lists them."""
    if not _NO_CARD_TO_BE_HAD.search(refusal):
        return refusal
    held = [(card.label, holder) for card in _snapshot().cards for holder in card.holders]
    if not held or any(f"process {holder.pid} " in refusal for _, holder in held):
        return refusal
    return f"{refusal.rstrip()} {holders.refusal(held)}."


def _snapshot() -> Snapshot:
    # Imported here because `%load_ext` imports this module but does not read the cards.
    from hpu_magic import monitor

    return monitor.snapshot()


def synchronize() -> None:
    """Wait for all work on the device to finish; do nothing before a card is acquired."""
    if taken():
        sys.modules["torch"].hpu.synchronize()


def own_card(snapshot: Snapshot | None = None) -> CardReading | None:
    """Return the current reading of this process's card, or None if it holds no card."""
    for card in (snapshot or _snapshot()).cards:
        if any(holder.pid == os.getpid() for holder in card.holders):
            return card
    return None


class _OwnNumber:
    """Finds this process's card among the machine's cards, and caches its number."""

    def __init__(self) -> None:
        self._found: int | None = None
        self._looked = -_PATIENCE

    def __call__(self) -> int | None:
        # Do not retry too often: some machines never report holders, and a snapshot takes a while.
        if self._found is None and time.monotonic() - self._looked >= _PATIENCE:
            card = own_card()
            self._found = card.module_id if card else None
            self._looked = time.monotonic()
        return self._found


_own_number = _OwnNumber()


def own_number() -> int | None:
    """Return the module ID of this process's card, or None if it has none or the ID is unknown."""
    return _own_number() if taken() else None


@lru_cache(maxsize=1)
def generation() -> str | None:
    """Return the generation of the machine's cards, such as ``GAUDI2``, or None if unknown."""
    cards = _snapshot().cards
    return next((card.generation for card in cards if card.generation), None)


def label() -> str:
    """Return the name of this process's card for a headline, such as ``HPU 3 (simulated GAUDI2)``.

    Returns ``hpu (simulated GAUDI2)`` if the process has no card or its number is unknown.
    """
    number = own_number()
    return family() if number is None else family().replace("hpu", f"HPU {number}", 1)


def family() -> str:
    """Return the name of the device without a card number, such as ``hpu (simulated GAUDI2)``."""
    return f"hpu ({'simulated ' if backend.is_simulated() else ''}{generation() or 'no card'})"


def dtype_named(name: Any) -> Any:
    """Return the dtype for a name such as "bf16" or "float32"; dtypes are returned unchanged."""
    import torch

    if isinstance(name, torch.dtype):
        return name
    if name not in DTYPES:
        fix = suggestion(str(name), DTYPES) or "use bf16, fp16 or fp32."
        raise HPUError(f"Unknown dtype {name!r}: {fix}")
    return getattr(torch, DTYPES[name])


def width(dtype: Any) -> int:
    """Return the size in bytes of an element on a card, which may be half the size of the dtype.

    Cards do not support float64 or complex128. int64 is supported if ``PT_ENABLE_INT64_SUPPORT`` is
    set, and on Gaudi 2 and later also in eager mode.
    """
    torch = torch_with_hpu()
    narrow = dtype in (torch.float64, torch.complex128)
    if narrow or (dtype == torch.int64 and not _has_int64()):
        return int(dtype.itemsize) // 2
    return int(dtype.itemsize)


def _has_int64() -> bool:
    from habana_frameworks.torch.utils.internal import is_lazy

    if os.environ.get("PT_ENABLE_INT64_SUPPORT", "").strip().lower() in ("1", "true", "yes", "on"):
        return True
    return not is_lazy() and generation() != "GAUDI"
