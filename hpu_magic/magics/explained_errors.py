"""Below a cell's error, print whether frames are omitted, and the cause and fix if known."""

from __future__ import annotations

import gc
import sys
from typing import Any

from IPython.core.error import UsageError

from hpu_magic.magics.wrong_lines import missing_command
from hpu_magic.plain_text import printable


class ExplainedErrors:
    """Prints notes after a cell has raised an error."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._card_was_full = False
        shell.events.register("post_run_cell", self._after)

    def close(self) -> None:
        """Stop printing."""
        self._shell.events.unregister("post_run_cell", self._after)

    def _after(self, result: Any) -> None:
        error = result.error_in_exec
        if error is None:
            return
        cause = self._unknown(error) or self._full_card(error) or _cause(error)
        for text in filter(None, (self._omitted(error), cause)):
            print(printable(text, keep="\n\t"), file=sys.stderr)

    def _omitted(self, error: BaseException) -> str | None:
        traceback = self._shell.InteractiveTB
        # The other traceback modes show either all frames or none.
        if not _is_explainable(error) or traceback.mode not in traceback.verbose_modes:
            return None
        from hpu_magic.fits.folded_frames import has_folded_frames

        if not has_folded_frames(error):
            return None
        return "Frames of the framework and hpu_magic are omitted; %tb Plain shows all frames."

    def _unknown(self, error: BaseException) -> str | None:
        if not isinstance(error, UsageError):
            return None
        magics = self._shell.magics_manager.magics
        names = {kind: {n for n in found if n.startswith("hpu")} for kind, found in magics.items()}
        known = names["line"] | names["cell"]
        return missing_command(str(error), known, names["cell"] - names["line"])

    def _full_card(self, error: BaseException) -> str | None:
        if "torch" not in sys.modules:
            return None
        from hpu_magic.runtime.measure.out_of_memory import explain

        if self._card_was_full:
            # The traceback of the previous error, which this error replaced, keeps tensors alive in
            # reference cycles.
            gc.collect()
        explanation = explain(error, self._shell.user_ns, self._shell.user_ns_hidden)
        self._card_was_full = explanation is not None
        return explanation


def _is_explainable(error: BaseException) -> bool:
    """Return whether an error can be explained.

    Interrupts do not need an explanation, and usage errors already explain how to fix them.
    """
    return isinstance(error, Exception) and not isinstance(error, UsageError)


def _cause(error: BaseException) -> str | None:
    if not _is_explainable(error):
        return None
    from hpu_magic.huggingface import causes

    wrapping = sys.modules.get("hpu_magic.runtime.graphs.wrapping")
    return (wrapping and wrapping.explain(error)) or causes.explain(error)
