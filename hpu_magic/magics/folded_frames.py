"""A plain sentence below a traceback that frames of a fit were left out of."""

from __future__ import annotations

import sys
from typing import Any

from IPython.core.error import UsageError


class FoldedFramesNote:
    """Watches the errors that cells end with."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        shell.events.register("post_run_cell", self._after)

    def close(self) -> None:
        """Watch no more."""
        self._shell.events.unregister("post_run_cell", self._after)

    def _after(self, result: Any) -> None:
        error = result.error_in_exec
        # Neither an interrupt nor a refusal is looked for in frames.
        if not isinstance(error, Exception) or isinstance(error, UsageError):
            return
        traceback = self._shell.InteractiveTB
        if traceback.mode not in traceback.verbose_modes:
            return  # The others show every frame, or none.
        from hpu_magic.fits.folded_frames import has_folded_frames

        if has_folded_frames(error):
            print(
                "The frames of Lightning and hpu_magic are left out; %tb Plain shows them all.",
                file=sys.stderr,
            )
