"""``%hpu_fit`` and ``%%hpu_fit``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.magics import cell as cells
from hpu_magic.magics import kinds
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.command_line import understood
from hpu_magic.magics.settings import Configured, HPUMagics

if TYPE_CHECKING:
    from hpu_magic.fits.result import FitResult

_LINE_FORM = "write %hpu_fit TRAINER [MODEL [DATA]]"


@magics_class
class FitMagics(CommandMagics):
    """Shows a fit while it runs."""

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        cells.offer("hpu_fit", self._observe)

    def fits(self, argument: str, position: int, value: Any) -> bool:
        """Tell whether a variable is what comes next: a Trainer, a module, then data."""
        if argument != "names" or position > 2:
            return False
        if position == 2:
            return kinds.data(value)
        if position == 1:
            return kinds.lightning(value, "LightningModule")
        return kinds.trainer(value)

    def follows(self, argument: str, words: Sequence[str]) -> bool:
        """Tell whether a model or data may be named: not for a Trainer that has its own."""
        from hpu_magic.huggingface.names import is_trainer

        named = understood(self.hpu_fit.parser, words).values  # type: ignore[attr-defined,union-attr]
        trainer = None
        if named:
            with suppress(Exception):  # an attribute of the user's may raise anything
                trainer = self.find(named[0])
        return not is_trainer(trainer)

    @line_cell_magic
    @magic_arguments()
    @argument(
        "--interval",
        type=float,
        metavar="SECONDS",
        default=Configured("fit_interval"),
        help="seconds between two samples, 0.02 to 60; drawn twice a second at most",
    )
    @argument(
        "-o",
        "--output",
        metavar="NAME",
        help="keep the result under this name, however the fit ends",
    )
    @argument("names", nargs="*", help="TRAINER [MODEL [DATA]], names of variables; line form only")
    def hpu_fit(self, line: str, cell: str | None = None) -> FitResult | None:
        """Run a fit of Lightning or transformers with the live panel: loss, pace, device memory.

        Its Stop button ends the fit after the current batch; a Trainer of transformers completes
        the optimizer step. What stays in the notebook is a picture and a table. As a cell magic
        it gives every trainer.fit(...) and trainer.train() in the cell its panel. Where a fit
        fails, the traceback leaves out the frames of the framework and hpu_magic; %tb Plain shows
        them all. For a loop without a framework there is hpu_magic.watch(loader). Examples::

            %hpu_fit trainer model train_loader
            result = %hpu_fit trainer

            %%hpu_fit -o result
            trainer.train(resume_from_checkpoint=True)
        """
        if cell is not None:
            cells.run(self.shell, "hpu_fit", line, cell)
            return None
        options = self.parse(self.hpu_fit, line)
        if not 1 <= len(options.names) <= 3:
            said = " ".join(options.names) or "nothing"
            raise UsageError(f"%hpu_fit takes one to three names, not {said!r}: {_LINE_FORM}.")
        self.check_name(options.output)
        given = [self.find(name) for name in options.names]
        from hpu_magic.fits import fit
        from hpu_magic.fits.folded_frames import FoldedFrames

        results: list[FitResult] = []

        def ended(result: FitResult) -> None:
            results.append(self.keep(options.output, result))

        with FoldedFrames():
            self.call(
                fit.fit_with_callback,
                *given,
                interval=options.interval,
                panel=self.settings.panel,
                ended=ended,
            )
        return results[0]

    def _observe(self, line: str) -> _Observed:
        options = self.parse(self.hpu_fit, line, cell=True)
        if options.names:
            raise UsageError(
                f"%%hpu_fit takes no names, and {options.names[0]!r} is one: call trainer.fit or "
                f"trainer.train in the cell, or {_LINE_FORM}."
            )
        self.check_name(options.output)
        return _Observed(self, options.output, options.interval)


class _Observed:
    """The cell's context: every fit in it gets a panel."""

    def __init__(self, magics: FitMagics, output: str | None, interval: float) -> None:
        from hpu_magic.fits.observed import observed_fits

        self._magics = magics
        self._output = output
        self._fits = observed_fits(interval, magics.settings.panel)
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
        """Say when there was nothing to show; a fit's own panel is below the cell already."""
        if self._results or not self._completed:
            return None
        print(
            "%%hpu_fit saw no trainer.fit(...) and no trainer.train() in this cell. For a loop of "
            "your own write: for batch in hpu_magic.watch(loader)."
        )
        return None
