"""One process of a feature: ``rank.py FUNCTION FOLDER SETTINGS OPTIONS`` writes its numbers."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

# The folder of this script contains modules with the names of standard ones.
sys.path[0] = str(Path(__file__).parents[1])


def main(name: str, folder: str, settings: str, options: str) -> None:
    """Run ``module.function``, and write its numbers to the folder."""
    rank = int(os.environ.get("RANK", 0))
    module, function = name.split(".")
    program = getattr(importlib.import_module(f"deepspeed_table.{module}"), function)
    numbers = program(Path(folder), json.loads(settings), **json.loads(options))
    Path(folder, f"numbers_{rank}.json").write_text(json.dumps(numbers))
    import torch.distributed as dist

    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    # The launcher of DeepSpeed adds its own first argument.
    main(*(each for each in sys.argv[1:] if not each.startswith("--local_rank")))
