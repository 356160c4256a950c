"""What the options of a step are called, for the magics and for ``hpu-magic estimate``.

Imports no torch: each names its choices before anything is traced.
"""

from __future__ import annotations

from typing import Any

MODES = ("eager", "lazy", "graphs", "compile")
PRECISIONS = ("fp32", "bf16", "bf16-mixed", "fp8")
GENERATIONS = ("gaudi", "gaudi2", "gaudi3")

Argument = tuple[str, dict[str, Any]]
"""An option and what declares it, as `argparse` and IPython's magics take it."""


def shared_arguments(
    *, generation: Any, mode: Any, precision: Any, mode_said: str
) -> list[Argument]:
    """Return the options that mean the same in a notebook and in a terminal.

    Parameters
    ----------
    generation, mode, precision
        What is taken where they are left out.
    mode_said : str
        What is taken for the mode, in words.
    """
    return [
        (
            "--no-train",
            {"action": "store_true", "help": "the forward pass alone, without gradients"},
        ),
        (
            "--generation",
            {
                "default": generation,
                "choices": [*GENERATIONS],
                "help": "the card (gaudi2 by default)",
            },
        ),
        (
            "--cards",
            {"type": int, "default": 1, "metavar": "N", "help": "cards that work together"},
        ),
        (
            "--parallel",
            {
                "metavar": "HOW",
                "help": "how they share the work: ddp, zero1, zero2, zero3, fsdp, tp=N, "
                "pp=N, or products, as tp=2,pp=2,zero1",
            },
        ),
        (
            "--mode",
            {
                "default": mode,
                "choices": [*MODES],
                "help": f"how operations reach the card ({mode_said} by default)",
            },
        ),
        (
            "--precision",
            {
                "default": precision,
                "choices": [*PRECISIONS],
                "help": "what it computes in (the type of the model's parameters by default)",
            },
        ),
        (
            "--checkpointing",
            {
                "default": "none",
                "choices": ["none", "full", "selective"],
                "help": "what of the layers is computed again in the backward pass",
            },
        ),
        (
            "--accumulate",
            {"type": int, "default": 1, "metavar": "N", "help": "batches in a step"},
        ),
        (
            "--batch",
            {"metavar": "N", "help": "size of a batch on one card, or largest: what fits"},
        ),
    ]
