"""``%hpu_fit`` and ``%%hpu_fit``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class

from hpu_magic.commands import training as commands
from hpu_magic.magics import cell as cells
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.command_line import understood
from hpu_magic.magics.declared import options_of
from hpu_magic.magics.settings import HPUMagics

if TYPE_CHECKING:
    from hpu_magic.fits.result import FitResult

_LINE_FORM = "type %hpu_fit trainer model data"


@magics_class
class FitMagics(CommandMagics):
    """Run fits with a live panel."""

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        cells.offer("hpu_fit", self._observe)

    def follows(self, argument: str, words: Sequence[str]) -> bool:
        """Return whether a model or data may follow a trainer; transformers' Trainer has both."""
        from hpu_magic.huggingface.names import is_trainer

        named = understood(self.hpu_fit.parser, words).words  # type: ignore[attr-defined,union-attr]
        trainer = None
        if named:
            with suppress(Exception):  # attributes of the user's objects can raise any exception
                trainer = self.find(named[0])
        return not is_trainer(trainer)

    @line_cell_magic
    @options_of(
        commands.fit,
        line_only=("trainer", "model", "data"),
        output="assign the result to this variable, even if the fit fails",
    )
    def hpu_fit(self, line: str, cell: str | None = None) -> FitResult | None:
        """Train with Lightning or transformers and show the loss, speed and device memory live.

        The Stop button ends the fit after the current batch; transformers' Trainer completes the
        optimizer step. When the fit ends, a picture and a table replace the panel. The cell magic
        shows a panel for each call to trainer.fit(...) or trainer.train() in the cell. If a fit
        fails, the traceback omits the frames of the framework and hpu_magic; %tb Plain shows all
        frames. For your own training loop, use hpu_magic.watch(loader). Examples::

            %hpu_fit trainer model train_loader
            result = %hpu_fit trainer

            %%hpu_fit -o result
            trainer.train(resume_from_checkpoint=True)
        """
        if cell is not None:
            cells.run(self.shell, "hpu_fit", line, cell)
            return None
        options = self.parse(self.hpu_fit, line)
        if options.trainer is None:
            raise UsageError(f"%hpu_fit needs a Trainer: {_LINE_FORM}")
        from hpu_magic.fits.fit import fit_with_callback
        from hpu_magic.fits.folded_frames import FoldedFrames

        declaration = self.hpu_fit.declaration  # type: ignore[attr-defined,union-attr]
        arguments, named = declaration.arguments(options, self.find)
        results: list[FitResult] = []

        def ended(result: FitResult) -> None:
            results.append(self.keep(options.output, result))

        with FoldedFrames():
            self.call(fit_with_callback, *arguments, **named, ended=ended)
        return results[0]

    def _observe(self, line: str) -> _Observed:
        options = self.parse(self.hpu_fit, line, cell=True)
        if options.trainer is not None:
            raise UsageError(
                f"%%hpu_fit does not take the argument {options.trainer!r}: call trainer.fit or "
                f"trainer.train in the cell, or {_LINE_FORM}"
            )
        return _Observed(self, options.output, options.interval, options.panel)


class _Observed:
    """The context of a cell in which each fit has a panel."""

    def __init__(self, magics: FitMagics, output: str | None, interval: float, panel: str) -> None:
        from hpu_magic.fits.observed import observed_fits

        self._magics = magics
        self._output = output
        self._fits = observed_fits(interval, panel)
        self._results: list[FitResult] = []
        self._completed = False

    def __enter__(self) -> None:
        self._results = self._fits.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._completed = kind is None
        self._fits.__exit__(kind, error, traceback)
        if self._results:
            self._magics.keep(self._output, self._results[-1])

    def summary(self) -> str | None:
        """Print a hint if the cell did not run a fit; a fit has its own panel."""
        if self._results or not self._completed:
            return None
        print(
            "This cell called neither trainer.fit(...) nor trainer.train(). In your own training "
            "loop, write: for batch in hpu_magic.watch(loader)."
        )
        return None
