"""Read the loaded and the requested execution mode, and request another mode.

The vendor's library reads ``PT_HPU_LAZY_MODE`` once, when it is loaded: "0" means eager mode, and
any other value means lazy mode. Changing the mode therefore requires a new process.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hpu_magic.errors import HPUError, suggestion
from hpu_magic.runtime.device import device
from hpu_magic.runtime.present.report import Report, Row
from hpu_magic.runtime.start import first_import
from hpu_magic.runtime.start import restart as kernel

_Result = TypeVar("_Result")

VARIABLE = "PT_HPU_LAZY_MODE"
VALUES = {"eager": "0", "lazy": "1"}
_LEGACY = (
    "Lazy mode is a legacy mode that the vendor no longer develops; since release 1.21, eager mode "
    "is the default."
)


@dataclass(repr=False)
class ModeReport(Report):
    """The mode loaded in this process and the requested mode."""

    loaded: str | None
    """The loaded mode, "eager" or "lazy"; None before torch and the vendor's library are loaded."""
    requested: str | None
    """The mode that the next import will load; None for the library's default."""
    loaded_by: first_import.Origin | None = None  #: the line that loaded the library, if known
    restarting: bool = False  #: whether the kernel is being restarted
    remarks: list[str] = field(default_factory=list)  #: further notes

    @property
    def needs_restart(self) -> bool:
        """Whether the requested mode differs from the loaded mode."""
        return None not in (self.loaded, self.requested) and self.loaded != self.requested

    def title(self) -> str:
        """Return the headline."""
        return f"Execution mode of {device.family()}"

    def rows(self) -> Sequence[Row]:
        """Return the loaded and the requested mode."""
        loaded = self.loaded or "nothing yet (torch is not imported)"
        rows = [("loaded", loaded), ("requested", self.requested or "the library's default")]
        if self.loaded_by is not None and self.loaded is not None:
            rows.append(("loaded by", str(self.loaded_by)))
        return rows

    def notes(self) -> Sequence[str]:
        """Return notes on how the requested mode takes effect."""
        remarks = list(self.remarks)
        if "lazy" in (self.loaded, self.requested):
            remarks.append(_LEGACY)
        if self.restarting:
            mode = f" in {self.requested} mode" if self.requested else ""
            return [*remarks, f"Restarting the kernel{mode}; run your cells again."]
        if self.needs_restart:
            how = kernel.how(f"%hpu_mode {self.requested}")
            return [*remarks, f"The mode is read only once, at import: {how}"]
        return remarks


def loaded_mode() -> str | None:
    """Return the loaded mode, "eager" or "lazy", or None before the library is loaded."""
    if device.importing() or not device.bridge_loaded():
        return None
    from habana_frameworks.torch.utils.internal import is_lazy

    return "lazy" if is_lazy() else "eager"


def requested_mode() -> str | None:
    """Return the mode that this notebook's next process will load, or None for the default."""
    remembered = kernel.recall() if kernel.interactive() else {}
    value = remembered.get(VARIABLE, _set_by_user())
    if value is None:
        return None
    return "eager" if value == "0" else "lazy"


def _set_by_user() -> str | None:
    """Return the variable's value, or None if it was set by the library rather than the user."""
    value = os.environ.get(VARIABLE)
    if value == "0" and loaded_mode() == "eager":
        at_import = first_import.environment_at_import()
        # The user did not set the variable before the import, or it is not known whether the user
        # did, because torch was imported before this module.
        if at_import is os.environ or VARIABLE not in at_import:
            return None
    return value


class LazyNeededError(HPUError):
    """A feature that requires lazy mode was requested in a process that is not in lazy mode."""


def require_lazy(what: str) -> None:
    """Raise `LazyNeededError` for ``what`` unless the loaded or requested mode is lazy."""
    loaded = loaded_mode()
    if loaded == "lazy" or (loaded is None and requested_mode() == "lazy"):
        return
    if loaded is None:
        fix = "type %hpu_mode lazy first."
        if not kernel.interactive():
            fix = f"start python with {VARIABLE}=1."
        raise LazyNeededError(f"{what} need lazy mode, which has not been requested: {fix}")
    by = first_import.origin()
    fix = f"start python with {VARIABLE}=1."
    if kernel.available():
        fix = kernel.how("%hpu_mode lazy")
    elif kernel.interactive():
        fix = f"type %hpu_mode lazy, then {kernel.by_hand()}"
    raise LazyNeededError(
        f"{what} need lazy mode, but eager mode was loaded{f' by {by}' if by else ''}: {fix}"
    )


def request(
    requested: str | None = None, *, restart: bool = False, cells: Sequence[str] = ()
) -> ModeReport:
    """Request a mode, and return the modes of this process; see `hpu_magic.mode`.

    The function searches ``cells``, the notebook cells that have run, for the line that loaded the
    library.
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
        verb = "is" if loaded else "will be"
        report.remarks.append(f"No restart is needed: {requested} mode {verb} loaded.")
    return report


def in_lazy_mode(call: Callable[[], _Result], *, restart: bool) -> _Result:
    """Return the result of a call that may raise `LazyNeededError`.

    If ``call`` raises `LazyNeededError` and ``restart`` is true, restart the kernel in lazy mode,
    and raise an `HPUError` that says so.
    """
    try:
        return call()
    except LazyNeededError:
        if not restart:
            raise
    request("lazy", restart=True)
    raise HPUError("Restarting the kernel in lazy mode: run your cells again.")


def restore(stored: str) -> None:
    """Request the mode stored in a notebook's file, before its first cell runs.

    This function neither imports torch nor prints anything, and it keeps a mode that a cell
    requested after the file was saved.
    """
    value = VALUES[_known(stored)]
    with contextlib.suppress(OSError):  # without the file, the mode applies only to this process
        value = kernel.merge(VARIABLE, value)
    if not device.bridge_loaded():
        kernel.put(VARIABLE, value)


def _known(name: str) -> str:
    if name not in VALUES:
        fix = suggestion(name, VALUES) or "use eager or lazy."
        raise HPUError(f"Unknown execution mode {name!r}: {fix}")
    return name


def _request(requested: str, loaded: str | None, by: first_import.Origin | None) -> None:
    if loaded is None or loaded == requested:
        # Set the variable even if the mode is loaded: some vendor functions read it again.
        os.environ[VARIABLE] = VALUES[requested]
    elif not kernel.interactive():
        raise HPUError(
            f"{loaded.capitalize()} mode was already loaded{f' by {by}' if by else ''}: start "
            f"{os.path.basename(sys.argv[0]) or 'python'} with {VARIABLE}={VALUES[requested]}."
        )
    kernel.remember({VARIABLE: VALUES[requested]})
