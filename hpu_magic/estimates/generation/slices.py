"""Intermediate results of which a graph stores only one slice at a time.

The graph compiler splits a batch into slices, so that the results of one operation are still on the
die when the next one reads them. The vendor does not publish the size of the slices. Published jobs
with prompts of 2,048 tokens fit on a card only if the prompts are processed in slices: on Gaudi2,
Llama 2 with 7 billion parameters leaves room for 5.7 hidden states per token, but a layer computes
the equivalent of 9 hidden states at once; on two Gaudi3 cards, Llama 2 with 70 billion parameters
leaves room for 2.6 of 7 hidden states.
"""

from __future__ import annotations

from hpu_magic.estimates.tracing.program import Program, Role


def sliced(program: Program) -> set[int]:
    """Return the storages of which a graph stores only one sequence at a time.

    These storages contain results with one part per sequence that are created and last used within
    one layer, or outside of the layers. Results that a layer passes on, such as hidden states, are
    stored completely.
    """
    places = _places(program)
    found = set()
    for place, operation in zip(places, program.operations, strict=True):
        for operand in operation.writes:
            storage = program.storages[operand.storage]
            divisible = bool(operand.shape) and operand.shape[0] % program.samples == 0
            if (
                divisible
                and storage.role is Role.TEMPORARY
                and place == places[storage.born] == places[storage.last_used]
            ):
                found.add(operand.storage)
    return found


def _places(program: Program) -> list[int]:
    """Return a number for each operation; the number changes where a layer begins or ends."""
    places: list[int] = []
    before: str | None = None
    for operation in program.operations:
        layer = _layer(operation.module)
        place = places[-1] + (layer != before) if places else 0
        places.append(place)
        before = layer
    return places


def _layer(module: str) -> str | None:
    """Return the path of the outermost module with a number as its name; None if there is none."""
    parts = module.split(".")
    number = next((at for at, part in enumerate(parts) if part.isdecimal()), None)
    return None if number is None else ".".join(parts[: number + 1])
