"""Checkpoints: saved, resumed, consolidated and converted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from deepspeed_table.training import STEPS, Blocks, config, engine_for, losses_of

HALF = STEPS // 2


def save(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Train for half of the steps, and save a checkpoint."""
    torch.manual_seed(0)
    engine = engine_for(Blocks(), config(**settings))
    found = losses_of(engine, HALF)
    engine.save_checkpoint(folder, tag="half")
    dist.barrier()
    return found


def resume(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Load the checkpoint into a model with other values, and train for the remaining steps."""
    torch.manual_seed(1)
    engine = engine_for(Blocks(), config(**settings))
    tag = "universal" if settings.get("checkpoint") else "half"
    path, _ = engine.load_checkpoint(folder, tag=tag)
    if path is None:
        raise AssertionError(f"DeepSpeed did not find the checkpoint in {folder}.")
    return losses_of(engine, STEPS - HALF, skip=HALF)


def consolidate(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Run a checkpoint's ``zero_to_fp32.py``, and return values of the resulting weights."""
    made = folder / "weights"
    subprocess.run(
        [sys.executable, folder / "zero_to_fp32.py", folder, made, "-t", "half"], check=True
    )
    weights = torch.load(made / "pytorch_model.bin", weights_only=True)
    model = Blocks()
    model.load_state_dict(weights)
    return [value for each in weights.values() for value in each.flatten()[:8].tolist()]


def convert(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Convert a checkpoint to a universal checkpoint."""
    command = [
        sys.executable,
        "-m",
        "deepspeed.checkpoint.ds_to_universal",
        "--num_extract_workers",
        "1",
    ]
    command += ["--num_merge_workers", "1", "--inject_missing_state"]
    command += ["--input_folder", folder / "half", "--output_folder", folder / "universal"]
    subprocess.run(command, check=True)
    return []
