"""A sentence below a traceback that omits frames of a fit."""

from __future__ import annotations

import sys
from typing import Any

from IPython.core.error import UsageError


class FoldedFramesNote:
    """Prints the sentence after a cell with an error."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        shell.events.register("post_run_cell", self._after)

    def close(self) -> None:
        """Stop printing."""
        self._shell.events.unregister("post_run_cell", self._after)

    def _after(self, result: Any) -> None:
        error = result.error_in_exec
        # Interrupts and usage errors have no omitted frames.
        if not isinstance(error, Exception) or isinstance(error, UsageError):
            return
        traceback = self._shell.InteractiveTB
        if traceback.mode not in traceback.verbose_modes:
            return  # the other modes show all frames, or none
        from hpu_magic.fits.folded_frames import has_folded_frames

        if has_folded_frames(error):
            print(
                "Frames of the framework and hpu_magic are omitted; %tb Plain shows all frames.",
                file=sys.stderr,
            )
