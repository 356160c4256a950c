"""The execution mode: what is loaded in this process, what is asked for, and how to change it.

The vendor's library reads ``PT_HPU_LAZY_MODE`` once, when it loads; "0" is eager, every other
value lazy. A change therefore needs a new process.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hpu_magic.errors import RefusedError, suggestion
from hpu_magic.runtime.device import device
from hpu_magic.runtime.present.report import Report, Row
from hpu_magic.runtime.start import first_import
from hpu_magic.runtime.start import restart as kernel

_Result = TypeVar("_Result")

VARIABLE = "PT_HPU_LAZY_MODE"
VALUES = {"eager": "0", "lazy": "1"}


@dataclass(repr=False)
class ModeReport(Report):
    """The mode loaded in this process and the one requested.

    Attributes
    ----------
    loaded : {"eager", "lazy"} or None
        None as long as torch and the vendor's library are not imported.
    requested : {"eager", "lazy"} or None
        What the next import would load; None leaves it to the library's default.
    loaded_by : Origin or None
        The line that loaded the library, where known.
    restarting : bool
        The kernel is being restarted.
    """

    loaded: str | None
    requested: str | None
    loaded_by: first_import.Origin | None = None
    restarting: bool = False
    remarks: list[str] = field(default_factory=list)

    @property
    def needs_restart(self) -> bool:
        """Whether the requested mode differs from the loaded one."""
        return None not in (self.loaded, self.requested) and self.loaded != self.requested

    def title(self) -> str:
        """Return the headline."""
        return f"Execution mode of {device.family()}"

    def rows(self) -> Sequence[Row]:
        """Return loaded and requested mode."""
        loaded = self.loaded or "nothing yet (torch is not imported)"
        rows = [("loaded", loaded), ("requested", self.requested or "the library's default")]
        if self.loaded_by is not None and self.loaded is not None:
            rows.append(("loaded by", str(self.loaded_by)))
        return rows

    def notes(self) -> Sequence[str]:
        """Say what has to happen for the requested mode to take effect."""
        if self.restarting:
            mode = f" in {self.requested} mode" if self.requested else ""
            return [*self.remarks, f"The kernel restarts now{mode}; run your cells again."]
        if self.needs_restart:
            how = kernel.how(f"%hpu_mode {self.requested}")
            return [*self.remarks, f"The mode is read once, at import: {how}"]
        return self.remarks


def loaded_mode() -> str | None:
    """Return "eager" or "lazy" as loaded in this process, None before the library is loaded."""
    if device.importing() or not device.bridge_loaded():
        return None
    from habana_frameworks.torch.utils.internal import is_lazy

    return "lazy" if is_lazy() else "eager"


def requested_mode() -> str | None:
    """Return the mode that the next process will load for this notebook, None if none was asked."""
    remembered = kernel.recall() if kernel.interactive() else {}
    value = remembered.get(VARIABLE, _wished())
    if value is None:
        return None
    return "eager" if value == "0" else "lazy"


def _wished() -> str | None:
    """Return the variable's value, unless only the library has put it there for others to read."""
    value = os.environ.get(VARIABLE)
    if value == "0" and loaded_mode() == "eager":
        at_import = first_import.environment_at_import()
        if at_import is os.environ or VARIABLE not in at_import:  # torch came before us, or unset
            return None
    return value


class LazyNeededError(RefusedError):
    """Something exists in lazy mode only, and this process is in another."""


def require_lazy(what: str) -> None:
    """Refuse `what` unless this process is in lazy mode, or will be when torch is imported.

    Raises
    ------
    LazyNeededError
        The text says how to come into lazy mode.
    """
    loaded = loaded_mode()
    if loaded == "lazy" or (loaded is None and requested_mode() == "lazy"):
        return
    if loaded is None:
        mend = "type %hpu_mode lazy first."
        if not kernel.interactive():
            mend = f"start python with {VARIABLE}=1."
        raise LazyNeededError(f"{what} need lazy mode, which has not been asked for: {mend}")
    by = first_import.origin()
    mend = f"start python with {VARIABLE}=1."
    if kernel.available():
        mend = kernel.how("%hpu_mode lazy")
    elif kernel.interactive():
        mend = f"type %hpu_mode lazy, then {kernel.by_hand()}"
    raise LazyNeededError(
        f"{what} need lazy mode, and eager is loaded{f' by {by}' if by else ''}: {mend}"
    )


def request(
    requested: str | None = None, *, restart: bool = False, cells: Sequence[str] = ()
) -> ModeReport:
    """Return the modes of this process after requesting one; see `hpu_magic.mode`.

    Parameters
    ----------
    requested : {"eager", "lazy"} or None
        The mode to use.
    restart : bool
        Restart the kernel if the loaded mode is another, or if no mode is requested.
    cells : sequence of str
        The notebook's cells so far, searched for the line that loaded the library.

    Raises
    ------
    RefusedError
        There is no such mode, or a script requests a mode other than the loaded one.
    """
    if requested is not None:
        _known(requested)
    loaded = loaded_mode()
    by = first_import.origin(cells) if loaded else None
    if requested is not None:
        _request(requested, loaded, by)
    report = ModeReport(loaded, requested_mode(), by)
    if restart and (report.needs_restart or requested is None):
        kernel.restart_kernel(remembered=requested is not None)
        report.restarting = True
    elif restart:
        report.remarks.append(f"No restart is needed: {requested} is what torch loads or loaded.")
    return report


def in_lazy_mode(call: Callable[[], _Result], *, restart: bool) -> _Result:
    """Return the result of a call that needs lazy mode.

    Parameters
    ----------
    call : callable
        May raise `LazyNeededError`.
    restart : bool
        Restart the kernel in lazy mode in that case.

    Raises
    ------
    RefusedError
        The process is not in lazy mode; with ``restart``, the text says that it restarts.
    """
    try:
        return call()
    except LazyNeededError:
        if not restart:
            raise
    request("lazy", restart=True)
    raise RefusedError("The kernel restarts now in lazy mode: run your cells again after it.")


def restore(stored: str) -> None:
    """Ask for the mode that is stored with a notebook, before its first cell runs.

    Loads nothing and says nothing. A mode asked for in a cell since then is kept: the stored
    one only wins where it is the newer choice.

    Parameters
    ----------
    stored : {"eager", "lazy"}
        The choice in the notebook's file.

    Raises
    ------
    RefusedError
        Unknown mode.
    """
    value = VALUES[_known(stored)]
    with contextlib.suppress(OSError):  # where nothing can be remembered, it holds for this process
        value = kernel.merge(VARIABLE, value)
    if not device.bridge_loaded():
        kernel.put(VARIABLE, value)


def _known(name: str) -> str:
    if name not in VALUES:
        mend = suggestion(name, VALUES) or "use eager or lazy."
        raise RefusedError(f"There is no execution mode {name!r}: {mend}")
    return name


def _request(requested: str, loaded: str | None, by: first_import.Origin | None) -> None:
    if loaded is None or loaded == requested:
        # Also when it is loaded already: helpers of the vendor's read the variable again.
        os.environ[VARIABLE] = VALUES[requested]
    elif not kernel.interactive():
        raise RefusedError(
            f"The {loaded} mode is loaded already{f' by {by}' if by else ''}: start "
            f"{os.path.basename(sys.argv[0]) or 'python'} with {VARIABLE}={VALUES[requested]}."
        )
    kernel.remember({VARIABLE: VALUES[requested]})
