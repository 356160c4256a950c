"""Mixed precision with ``torch.autocast("hpu")``, operator lists and a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device
from hpu_magic.runtime.precision import operators
from hpu_magic.runtime.present.report import Report, Row

_LOWER_DTYPES = ("bfloat16", "float16")


@dataclass(repr=False)
class AutocastReport(Report):
    """The precision in which each operator is computed under autocast."""

    dtype: str  #: the lower-precision dtype, or "off"
    lists: operators.OperatorLists  #: the loaded operator lists
    operators: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of calls for each (operator, compute dtype). Only the forward pass is counted,
    because the backward pass uses the same dtypes."""
    casts: int = 0  #: number of conversions between floating-point dtypes

    def title(self) -> str:
        """Return the headline."""
        return f"Autocast {self.dtype} on {device.label()}"

    def rows(self) -> Sequence[Row]:
        """Return the operators, grouped by compute dtype."""
        by_dtype: dict[str, list[str]] = {}
        for (name, dtype), count in sorted(self.operators.items()):
            by_dtype.setdefault(dtype, []).append(f"{name} x{count}")
        rows = [(f"in {dtype}", ", ".join(names)) for dtype, names in sorted(by_dtype.items())]
        return [*rows, ("conversions", str(self.casts)), ("lists", self.lists.describe())]


class Autocast:
    """Run a ``with`` block under ``torch.autocast("hpu")``.

    ``lower``, ``fp32`` and ``level`` are described in `operators.requested`. The library reads the
    lists only when it is loaded, so only the loaded lists are accepted. With ``enabled=False``,
    autocast is off inside the block, regardless of the lists and the dtype. With ``verbose``,
    `summary` returns a report with the number of operator calls by compute dtype.

    Raises `HPUError` for an unknown dtype or operator, or for float16 on first-generation Gaudi,
    and `RestartNeededError` if different lists are already loaded.
    """

    def __init__(
        self,
        dtype: Any = "bf16",
        *,
        enabled: bool = True,
        lower: str | Iterable[str] | None = None,
        fp32: str | Iterable[str] | None = None,
        level: str | None = None,
        verbose: bool = False,
    ) -> None:
        if enabled and (lower is not None or fp32 is not None or level is not None):
            operators.ensure(operators.requested(lower, fp32, level))
        self._torch = device.torch_with_hpu()
        self.dtype = device.dtype_named(dtype)
        self.enabled = enabled
        self._check_dtype()
        self._verbose = verbose
        self._entered: list[ExitStack] = []
        self._report: AutocastReport | None = None

    def __enter__(self) -> Autocast:
        with ExitStack() as stack:
            stack.enter_context(self._torch.autocast("hpu", dtype=self.dtype, enabled=self.enabled))
            if self._verbose:
                self._report = AutocastReport(self._name(), operators.in_force())
                stack.enter_context(_recorder(self._torch, self._report))
            self._entered.append(stack.pop_all())
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)

    def summary(self) -> AutocastReport | None:
        """Return the report, or None unless `verbose` was set."""
        return self._report

    def _name(self) -> str:
        return str(self.dtype).removeprefix("torch.") if self.enabled else "off"

    def _check_dtype(self) -> None:
        name = str(self.dtype).removeprefix("torch.")
        if name not in _LOWER_DTYPES:
            raise HPUError(f"Autocast cannot compute in {name}: use bf16 or fp16.")
        if self.enabled and name == "float16" and device.generation() == "GAUDI":
            raise HPUError("First-generation Gaudi does not support float16: use bf16.")


def _recorder(torch: Any, report: AutocastReport) -> Any:
    """Return a dispatch mode that counts operators below autocast, where dtypes are final."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            name = func.overloadpacket.__name__
            inputs = [value for value in flat(args) if _counts(torch, value)]
            if name == "_to_copy":
                changed = _counts(torch, result) and inputs
                report.casts += bool(changed and result.dtype != inputs[0].dtype)
            elif inputs and not func.is_view and name not in ("detach", "t"):
                dtype = str(inputs[0].dtype).removeprefix("torch.")
                report.operators[name, dtype] += 1
            return result

    return Recorder()


def flat(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values in nested lists and tuples."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from flat(value)
        else:
            yield value


def _counts(torch: Any, value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor) and value.device.type == "hpu" and value.is_floating_point()
    )


@dataclass(repr=False)
class AutocastState(Report):
    """The state of autocast: whether it is on for all cells, and its operator lists."""

    dtype: str | None  # "bf16" or "fp16"; None if autocast is off
    lists: operators.OperatorLists
    """The lists that the library has read, or will read when it is loaded."""

    def title(self) -> str:
        """Return the headline."""
        state = f"on for all subsequent cells, {self.dtype}" if self.dtype else "off"
        return f"Autocast {state}, {device.label()}"

    def rows(self) -> Sequence[Row]:
        """Return the lists."""
        return [("lists", self.lists.describe())]
