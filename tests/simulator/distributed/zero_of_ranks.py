"""Functions for ranks: training with DeepSpeed's ZeRO stages and with DDP."""

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3] / "tools"))

from deepspeed_table import memory
from deepspeed_table.features import zero
from deepspeed_table.training import distributed_data_parallel, train


def losses() -> dict[str, list[float]]:
    """Return this rank's losses of 20 steps with DDP and with each ZeRO stage."""
    here = Path()
    found = {f"ZeRO {stage}": train(here, zero(stage)) for stage in range(4)}
    return {"DDP": distributed_data_parallel(here, {}), **found}


def peak_and_estimate(settings: dict[str, Any]) -> tuple[int, int]:
    """Return the measured and the estimated peak memory of a step in bytes."""
    chosen = memory.settings_of(settings)
    return max(memory.peaks(chosen)), memory.estimated(chosen, 2).peak
