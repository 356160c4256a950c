"""Commands that measure code on the device: time, memory, operators and overhead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from hpu_magic import notebook
from hpu_magic.commands.parameters import Names

if TYPE_CHECKING:
    from hpu_magic.panels.panel import MemoryPanel
    from hpu_magic.runtime.measure.ledger import Ledger
    from hpu_magic.runtime.measure.ledger_report import LedgerReport
    from hpu_magic.runtime.measure.memory import MemoryReport
    from hpu_magic.runtime.measure.profiling import profile as Profiling
    from hpu_magic.runtime.measure.timing import TimeReport


def memory(*, all: bool = False) -> MemoryReport:
    """Return the device's memory statistics, and the variables that hold memory.

    Acquires no card.

    Parameters
    ----------
    all : bool
        List every variable and module instead of only the largest ones.
    """
    from hpu_magic.runtime.measure.memory import memory_of

    return memory_of(*notebook.variables(), everything=all)


def memory_live(
    switch: Literal["on", "off"] | None = None,
    *,
    interval: float = 0.5,
    history: float = 120.0,
    panel: Literal["auto", "widget", "picture"] = "auto",
) -> MemoryPanel | MemoryReport | None:
    """Show a live panel of the device's memory: in use, peak and limit.

    The panel is updated while later cells run, until its button, ``off`` or the next panel stops
    it. It then leaves a picture. The panel does not acquire a card, but waits for the first ``hpu``
    tensor.

    Parameters
    ----------
    switch : {"on", "off"}, optional
        ``off`` stops the live panel, which leaves its last state as a picture.
    interval : float
        Seconds between two samples, 0.02 to 60.
    history : float
        Seconds that the chart shows, 1 to 86,400.
    panel : {"auto", "widget", "picture"}
        The live widget, a picture for front ends without widgets, or the best view that the page
        supports.

    Returns
    -------
    MemoryPanel or MemoryReport or None
        The panel in a notebook, otherwise the current statistics; None with ``off``.

    Raises
    ------
    HPUError
        A number is out of range, or no panel is live.
    """
    from hpu_magic.errors import HPUError
    from hpu_magic.panels import panel as panels
    from hpu_magic.panels.front_end import in_notebook

    if switch != "off":
        return panels.open_panel(interval, history, panel)
    if not panels.stop_panel():
        starts = "%hpu_memory_live starts one" if in_notebook() else "it needs a notebook"
        raise HPUError(f"No panel is live: {starts}.")
    return None


def time(
    function: Callable[..., Any], *arguments: Any, runs: int = 0, repeats: int = 5, **keywords: Any
) -> TimeReport:
    """Time ``function(*arguments, **keywords)`` on the device.

    The device is synchronized before and after each measurement. The first runs, which compile
    graphs and kernels, are reported separately from the steady state.

    Parameters
    ----------
    function : callable
        The function to call.
    *arguments, **keywords
        Its arguments.
    runs : int
        Runs per repeat; 0 selects a number such that a repeat takes about 0.2 s.
    repeats : int
        Number of repeats of the timed runs.

    Raises
    ------
    HPUError
        ``function`` is not callable, ``runs`` is negative or ``repeats`` is less than 1.
    """
    from hpu_magic.runtime.measure.timing import timed

    return timed(function, arguments, keywords, runs, repeats)


def profile(*, dir: str = "hpu_profile", trace: bool = True) -> Profiling:
    """Profile a ``with`` block: list the most expensive operators, and write a trace file.

    You can open the trace in TensorBoard or on ui.perfetto.dev. After the block, the ``report``
    attribute of the result contains the table.

    Parameters
    ----------
    dir : str
        The directory for the trace; it is created if it does not exist.
    trace : bool
        Whether to write a trace file.

    Raises
    ------
    HPUError
        The directory cannot be created, or no device is available.
    """
    from hpu_magic.runtime.measure import profiling

    return profiling.profile(dir if trace else None)


def ledger(
    switch: Literal["on", "off", "last"] | None = None, *, show: Names = None
) -> Ledger | LedgerReport | None:
    """Report the overhead of a ``with`` block, or of each later cell, on the device.

    The report counts compiled graphs, graph breaks, CPU fallbacks, host reads and graph replays,
    and contains the peak memory. ``with hpu_magic.ledger() as costs`` fills ``costs`` at the end of
    the block.

    Parameters
    ----------
    switch : {"on", "off", "last"}, optional
        In a notebook, ``on`` prints a line below each later cell until ``off``, and ``last``
        returns the table for the last of these cells.
    show : sequence of str, optional
        Parts of the line: graphs, breaks, fallbacks, reads, replays, card (time), peak; the default
        is all.

    Returns
    -------
    Ledger, LedgerReport or None
        The context manager or, with ``last``, the report.

    Raises
    ------
    HPUError
        A part of the line is unknown, or a script passes `switch`.
    """
    from hpu_magic.runtime.measure.ledger import Ledger
    from hpu_magic.runtime.measure.ledger_report import checked_parts

    parts = checked_parts(show)
    if switch is not None:
        shown = f" --show {','.join(parts)}" if parts else ""
        report: LedgerReport | None = notebook.run(f"%hpu_ledger {switch}{shown}")
        return report
    return Ledger(namespace=notebook.variables().namespace, show=parts)
