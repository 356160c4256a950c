"""Show a panel for every fit inside a with block, regardless of the framework."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from hpu_magic.fits import INTERVAL
from hpu_magic.fits.fit import check_panel, results_announced_to
from hpu_magic.fits.folded_frames import FoldedFrames
from hpu_magic.fits.result import FitResult
from hpu_magic.fits.session import observed_fit
from hpu_magic.fits.training import end_trainings
from hpu_magic.huggingface.names import TRAINER_MODULE
from hpu_magic.lightning.names import NAMESPACES
from hpu_magic.panels.panel import checked_interval
from hpu_magic.runtime.start.after_import import AfterImport
from hpu_magic.runtime.training.source import FitSource

_METHODS = {**dict.fromkeys(NAMESPACES, "fit"), TRAINER_MODULE: "train"}
"""Modules that define a ``Trainer`` class, and the name of its training method."""

_Method = Callable[..., Any]


@contextmanager
def observed_fits(interval: float = INTERVAL, panel: str = "auto") -> Iterator[list[FitResult]]:
    """Show a panel for every ``trainer.fit(...)`` and ``trainer.train()`` inside the with block.

    The frameworks may be imported inside the block. Yields a list to which the result of each fit
    is added when it ends, even if it fails. Raises HPUError if an argument is invalid.
    """
    checked_interval(interval)
    check_panel(panel)
    results: list[FitResult] = []

    def observed(original: _Method, self: Any, *args: Any, **kwargs: Any) -> Any:
        source = _source(original.__name__, self, *args, **kwargs)

        def run() -> Any:
            return original(self, *args, **kwargs)

        if source is None:
            return run()
        return observed_fit(source, run, interval, panel, results.append)

    with ExitStack() as patches:

        def observe(module: str) -> None:
            _wrap(sys.modules[module].Trainer, _METHODS[module], observed, patches)

        for module in _METHODS:
            if hasattr(sys.modules.get(module), "Trainer"):
                observe(module)
        finder = AfterImport([name for name in _METHODS if name not in sys.modules], observe)
        sys.meta_path.insert(0, finder)
        # hpu_magic.fit and loops show their own panels, but their results are also added to the
        # list.
        patches.enter_context(results_announced_to(results.append))
        patches.callback(sys.meta_path.remove, finder)
        patches.push(lambda kind, error, traceback: end_trainings(error))
        yield results


def _source(method: str, trainer: Any, *args: Any, **kwargs: Any) -> FitSource | None:
    """Return the source that monitors a Trainer's fit, or None if it is already monitored."""
    if method == "train":
        from hpu_magic.huggingface.source import source_of as of_transformers

        return of_transformers(trainer)
    from hpu_magic.lightning.fit.source import source_of

    return source_of(trainer, args[0] if args else kwargs.get("model"))


def _wrap(trainer_class: Any, method: str, observed: _Method, patches: ExitStack) -> None:
    """Redirect calls to a method to ``observed``, including in current and future subclasses."""

    def wrap(cls: Any) -> None:
        original = vars(cls).get(method)
        if original is None:
            return

        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            with FoldedFrames():
                return observed(original, self, *args, **kwargs)

        setattr(cls, method, call)
        patches.callback(setattr, cls, method, original)

    def wrap_new_subclass(cls: Any, **kwargs: Any) -> None:
        super(trainer_class, cls).__init_subclass__(**kwargs)
        wrap(cls)

    for each in _with_subclasses(trainer_class):
        wrap(each)
    if "__init_subclass__" not in vars(trainer_class):
        trainer_class.__init_subclass__ = classmethod(wrap_new_subclass)
        patches.callback(delattr, trainer_class, "__init_subclass__")


def _with_subclasses(cls: Any) -> list[Any]:
    classes = {cls: None}
    for subclass in cls.__subclasses__():
        classes.update(dict.fromkeys(_with_subclasses(subclass)))
    return list(classes)
