"""Run programs on cards that compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from hpu_magic import notebook
from hpu_magic.commands.parameters import Card, Host, Names, Words

if TYPE_CHECKING:
    from hpu_magic.dry_runs.report import DryRun

StandIns = Annotated[Sequence[str] | None, Words(repeats=True)]


def dry_run(
    script: str | None = None,
    arguments: Sequence[str] = (),
    code: str | None = None,
    *,
    card: Card | None = None,
    cards: int = 1,
    nodes: int | None = None,
    steps: int | None = None,
    whole: bool = False,
    host: Host | None = None,
    trace: str | None = None,
    value: StandIns = None,
    imbalance: float = 1.0,
    push: Names = None,
) -> DryRun:
    """Run a script or a cell on simulated cards that compute nothing, to see whether it fits.

    The program runs unmodified, in its own process. Tensors have sizes and device memory, but no
    values; if the program reads a value, it gets a stand-in. By default, the run ends when the
    optimizer steps repeat. The time of a step is an estimate.

    Parameters
    ----------
    script : str, optional
        Path of the script.
    arguments : sequence of str
        Arguments of the script.
    code : str, optional
        Python code to run instead of a script; its lines are called ``cell:LINE``.
    card : {"gaudi", "gaudi2", "gaudi3"}, optional
        The generation of the card (HPU_MAGIC_CARD by default).
    cards : int
        Number of ranks, one per card; the first one, and those with which it exchanges
        messages, run and represent all ranks.
    nodes : int, optional
        Number of machines (eight cards each by default).
    steps : int, optional
        Number of optimizer steps: the run ends after them, or earlier if the steps repeat, and the
        time is that of all of them.
    whole : bool
        Run to the end, even if the steps repeat.
    host : {"ideal", "measured"}, optional
        The host in the time of a step: an ideal one, which only launches work, or this machine,
        with the time that Python and data loading take (HPU_MAGIC_CARD_TIME by default).
    trace : str, optional
        File for a trace of a step on the card, which ui.perfetto.dev can open.
    value : sequence of str, optional
        Values that lines read from the card, such as ``train.py:42=0.5``.
    imbalance : float
        Tokens that the first card processes in its experts, divided by the mean, if the cards share
        the experts of a mixture-of-experts model; with 1.0, all cards process the same number.
    push : sequence of str, or dict, optional
        Variables to copy to the process before the code runs.

    Returns
    -------
    DryRun
        ``peak``, its ``composition`` by kind of tensor, ``out_of_memory`` and the ``shortage``,
        ``steps``, the ``time`` of a step, and the lines with CPU fallbacks, host reads, stand-ins
        and assumed sizes.

    Raises
    ------
    HPUError
        The script does not exist, an argument is invalid, a variable cannot be copied, or the
        process ended without a result.
    """
    from hpu_magic.dry_runs.request import Request
    from hpu_magic.dry_runs.run import dry_run as run

    return run(
        Request(
            script,
            arguments,
            code,
            notebook.values(push),
            card=card,
            cards=cards,
            nodes=nodes,
            steps=steps,
            whole=whole,
            host=host,
            trace=trace,
            values=[value] if isinstance(value, str) else value or (),
            imbalance=imbalance,
        )
    )
