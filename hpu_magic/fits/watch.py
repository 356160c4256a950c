"""A panel for a plain training loop: ``for batch in hpu_magic.watch(loader): ...``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any

from hpu_magic.errors import RefusedError
from hpu_magic.fits.fit import FIT_INTERVAL, check_panel
from hpu_magic.fits.loop import LoopSource
from hpu_magic.fits.watched import Watch, active_watches, watch_between_epochs
from hpu_magic.panels.panel import checked_interval
from hpu_magic.panels.session import Session

__all__ = ["Watch", "watch"]


def watch(
    loader: Iterable[Any],
    *,
    epochs: int = 1,
    loss: Callable[[], Any] | None = None,
    total: int | None = None,
    name: str = "loop",
    device: Any = None,
    interval: float = FIT_INTERVAL,
    panel: str = "auto",
) -> Watch:
    """Go through a loader with the live panel of a fit; its Stop ends the loop after the batch.

    What is shown is told in the loop's body, by ``hpu_magic.watch.log(loss=loss)`` or the same
    method of what this returns, or asked for by `loss`. Tensors are read only when a report is
    due. A second watch inside the body has no panel: it counts as the validation of the first.

    In ``for epoch in range(3): for batch in hpu_magic.watch(loader):`` each pass is an epoch of one
    panel, and another watch between two passes is a validation. The panel ends with the cell, or
    when `Watch.result` is read. Fits with different names have panels of their own.

    Parameters
    ----------
    loader : iterable
        Whatever gives the batches.
    epochs : int
        How often a ``for`` goes through it. Within ``with hpu_magic.watch(...) as watched`` each
        ``for batch in watched`` is one epoch of the same panel, and this is how many are planned.
    loss : callable, optional
        Called without arguments after a batch of which values are shown; returns the loss, or a
        dict of values by name.
    total : int, optional
        How many batches there are, of a loader that does not know.
    name : str
        What is trained.
    device : torch.device or str, optional
        Where; left out, the card if this process has something on it.
    interval : float
        Seconds between two samples, 0.02 to 60; the panel is drawn twice a second at most.
    panel : str
        As in `hpu_magic.fit`.

    Returns
    -------
    Watch
        To be iterated; its ``result`` is there when the loop has ended, however it did.

    Raises
    ------
    RefusedError
        When an argument is not what it has to be.

    Examples
    --------
    >>> for batch in hpu_magic.watch(loader, epochs=3):  # doctest: +SKIP
    ...     loss = step(batch)
    ...     hpu_magic.watch.log(loss=loss)
    """
    checked_interval(interval)
    check_panel(panel)
    if not isinstance(loader, Iterable):
        raise RefusedError(
            f"watch goes through a loader, such as a DataLoader, and a {type(loader).__name__} "
            "cannot be gone through: write for batch in hpu_magic.watch(loader)."
        )
    if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
        raise RefusedError(f"epochs is a number from 1, not {epochs!r}.")
    if total is not None and (not isinstance(total, Integral) or total < 0):
        raise RefusedError(f"total is how many batches there are, not {total!r}.")
    if epochs > 1 and iter(loader) is loader:
        raise RefusedError(
            f"A {type(loader).__name__} can be gone through once, not {epochs} times: give watch "
            "what makes it, such as a DataLoader or a list."
        )
    if loss is not None and not callable(loss):
        raise RefusedError(
            f"loss is a function that returns the loss, not a {type(loss).__name__}: write "
            "loss=lambda: loss, or hpu_magic.watch.log(loss=loss) in the loop."
        )
    source = LoopSource(name, device, loss)
    return Watch(loader, source, epochs, total, lambda: Session(source, interval, panel))


def _log(**values: Any) -> None:
    """Log values of the innermost loop of this thread; see `Watch.log`."""
    active = active_watches()
    found = active[-1] if active else watch_between_epochs()
    if found is None:
        raise RefusedError(
            "No loop is watched here: call watch.log(...) in the body of for batch in "
            "hpu_magic.watch(loader)."
        )
    found.log(**values)


watch.log = _log  # type: ignore[attr-defined]
