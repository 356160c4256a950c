"""Which of the CPU's libraries computes large products, decided by measuring them once.

Processors differ in which library is the faster one. The answer is kept in a file beside the
compiled engines, for each processor, number of threads and PyTorch.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, get_args

import torch
from hpu_magic.simulator.engine import cache
from torch.utils._python_dispatch import _disable_current_modes

Form = Literal["linear", "plain", "left transposed"]
"""How a product's operands lie in memory: as in a layer's forward, in its gradient by the input,
or in its gradient by the weight."""

LINEAR: Any = getattr(
    getattr(torch.ops.mkldnn, "_linear_pointwise", None), "default", None
)  # None where PyTorch is built without oneDNN
FILE = "products.json"

_FEWEST, _ROUNDS = 7, 41
_LONGEST = 0.1  # seconds for each form, beyond the fewest rounds
_ROWS, _INNER, _COLUMNS = 64, 512, 512
_WORTH = 0.95  # of the time of PyTorch's own product: less is noise
_LIBRARY_SETTINGS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")

_measured: dict[str, dict[Form, float]] = {}


def is_faster_by_onednn(form: Form) -> bool:
    """Return whether oneDNN computes a large float32 product faster than PyTorch's own `mm`.

    The first question on a machine takes about a tenth of a second, in which both are timed.
    """
    if LINEAR is None or not torch.backends.mkldnn.enabled:
        return False
    key = _key()
    if key not in _measured:
        _measured[key] = _read(key) or _measure_and_write(key)
    return _measured[key][form] < _WORTH


def _key() -> str:
    settings = [f"{name}={os.environ[name]}" for name in _LIBRARY_SETTINGS if name in os.environ]
    parts = (_processor(), torch.backends.cpu.get_cpu_capability(), *settings)
    return f"{' '.join(parts)}, {torch.get_num_threads()} threads, torch {torch.__version__}"


@functools.lru_cache(maxsize=1)
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else f"{platform.machine()} {platform.processor()}".strip()


def _read(key: str) -> dict[Form, float] | None:
    """Return what was measured before; None where nothing was, or not by this code."""
    try:
        known = json.loads((cache.user_directory() / FILE).read_text())
        ratios = known[key]
        return {form: float(ratios[form]) for form in get_args(Form)}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _measure_and_write(key: str) -> dict[Form, float]:
    halves = _measure()
    if all((first < _WORTH) == (second < _WORTH) for first, second in halves.values()):
        # A cache that cannot be written costs the next process its own measurement, no more.
        with contextlib.suppress(OSError):
            _write(key, {form: max(ratios) for form, ratios in halves.items()})
    return {form: max(ratios) for form, ratios in halves.items()}


def _write(key: str, ratios: dict[Form, float]) -> None:
    """Add an entry; of two processes that add one at once, one may have to measure again."""
    directory = cache.user_directory()
    cache.make_private(directory)
    try:
        known = json.loads((directory / FILE).read_text())
    except (OSError, ValueError):
        known = {}
    entries = {**known, key: ratios} if isinstance(known, dict) else {key: ratios}
    with tempfile.NamedTemporaryFile("w", dir=directory, delete=False) as scratch:
        json.dump(entries, scratch, indent=1)
    os.replace(scratch.name, directory / FILE)


def _measure() -> dict[Form, tuple[float, float]]:
    """Time oneDNN against `mm`, twice for each form.

    Where the two disagree, something else kept the machine busy.
    """
    # A compilation runs under modes of its own, in which tensors have no memory.
    with _disable_current_modes(), torch.no_grad(), torch.autocast("cpu", enabled=False):
        return {form: _ratios(left, right) for form, (left, right) in _operands().items()}


def _operands() -> dict[Form, tuple[torch.Tensor, torch.Tensor]]:
    def ones(*shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=torch.float32, device="cpu")

    return {
        "linear": (ones(_ROWS, _INNER), ones(_COLUMNS, _INNER).t()),
        "plain": (ones(_ROWS, _INNER), ones(_INNER, _COLUMNS)),
        "left transposed": (ones(_ROWS, _INNER).t(), ones(_ROWS, _COLUMNS)),
    }


def _ratios(left: torch.Tensor, right: torch.Tensor) -> tuple[float, float]:
    """Compare the shortest times of rounds in turn, apart for every second round."""

    def seconds(product: Callable[[], Any]) -> float:
        start = perf_counter()
        product()
        return perf_counter() - start

    end = perf_counter() + _LONGEST
    rounds = []
    while len(rounds) < _FEWEST or (len(rounds) < _ROUNDS and perf_counter() < end):
        own = seconds(lambda: torch.mm(left, right))
        onednn = seconds(lambda: LINEAR(left, right.t(), None, "none", [], ""))
        rounds.append((own, onednn))
    del rounds[0]  # it prepares both
    first, second = (
        min(onednn for _, onednn in half) / min(own for own, _ in half)
        for half in (rounds[::2], rounds[1::2])
    )
    return first, second
