"""One process of a feature: ``rank.py FUNCTION FOLDER SETTINGS OPTIONS`` writes its numbers."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

# This script's folder contains modules with the same names as standard modules.
sys.path[0] = str(Path(__file__).parents[1])


def run_quietly(name: str, folder: str, settings: str, options: str) -> list[float]:
    """Like `run`, but write all output to a file."""
    os.chdir(folder)
    with open(Path(folder, f"output_{os.environ['RANK']}.txt"), "a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    return run(name, folder, settings, options)


def run(name: str, folder: str, settings: str, options: str) -> list[float]:
    """Return the numbers of ``module.function``, and leave the process group."""
    module, function = name.split(".")
    program = getattr(importlib.import_module(f"deepspeed_table.{module}"), function)
    numbers = program(Path(folder), json.loads(settings), **json.loads(options))
    import torch.distributed as dist

    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    return numbers


if __name__ == "__main__":
    # DeepSpeed's launcher inserts its own first argument.
    words = [each for each in sys.argv[1:] if not each.startswith("--local_rank")]
    written = Path(words[1], f"numbers_{os.environ.get('RANK', 0)}.json")
    written.write_text(json.dumps(run(*words)))
