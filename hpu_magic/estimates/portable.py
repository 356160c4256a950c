"""Estimates that can be stored and sent to another process, which leaves the model behind."""

from __future__ import annotations

from typing import Any

from hpu_magic.estimates.errors import EstimateError


class Portable:
    """Base of estimates; `find_largest`, which has the model, stays where they were made.

    Nothing of an estimate changes, so that a copy within the process is the estimate itself.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the values as numbers, texts, lists and dicts: seconds, and bytes."""
        found: Any = self
        names = ["seconds", "tokens_per_second", "batch", "peak_memory", "fits", "band"]
        of_kind = ("first_token_seconds", "token_seconds", "samples_per_second")
        names += [name for name in of_kind if hasattr(found, name)]
        card = found.settings.card if hasattr(found, "settings") else found.card
        return {
            "estimate": found.title().removeprefix("Estimate: "),
            "model": found.model,
            **{name: getattr(found, name) for name in names},
            "memory_of_a_card": card.memory,
            "memory": found.memory if isinstance(found.memory, dict) else found.memory.parts(),
        }

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
