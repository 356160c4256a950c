"""Estimates that can be stored and sent to another process, which leaves the model behind."""

from __future__ import annotations

from typing import Any

from hpu_magic.estimates.errors import EstimateError


class Portable:
    """Base of estimates; `find_largest`, which has the model, stays where they were made.

    Nothing of an estimate changes, so that a copy within the process is the estimate itself.
    """

    def __copy__(self) -> Portable:
        return self

    def __deepcopy__(self, _: Any) -> Portable:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "find_largest": _elsewhere}


def _elsewhere() -> int:
    raise EstimateError(
        "The largest batch was not looked for before this estimate left its model: ask for "
        'largest_batch, or batch="largest", where the model is.'
    )
