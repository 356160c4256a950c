"""A fit on two cards, started as by gaudi_spawn.py, or on the CPU with the same batches."""

import json
import os
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from reports import ON_CPU, report


def start() -> int:
    """Run this file on two ranks with the launcher, and return its exit status."""
    from optimum.habana.distributed import DistributedRunner

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ["PET_MASTER_PORT"] = str(free.getsockname()[1])
    command = " ".join((__file__, *sys.argv[1:]))
    return DistributedRunner(command_list=[command], world_size=2).run() or 0


def fit(**options) -> dict[str, Any]:
    """Train with four sentences per step."""
    import train

    if ON_CPU:
        return train.fit(per_device_train_batch_size=4)
    import torch.distributed

    done = train.fit(ddp_find_unused_parameters=False, **options)
    backend = torch.distributed.get_backend()
    return {**done, "cards": torch.distributed.get_world_size(), "backend": backend}


def fit_sharded(stage: int) -> dict[str, Any]:
    """Train with ``--deepspeed ds_config.json``."""
    configuration = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_clipping": "auto",
        "zero_optimization": {"stage": stage, "reduce_bucket_size": 2000},
        "zero_allow_untested_optimizer": True,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ds_config.json")
        path.write_text(json.dumps(configuration), encoding="utf-8")
        return fit(deepspeed=str(path))


if __name__ == "__main__":
    if not ON_CPU and "RANK" not in os.environ:
        sys.exit(start())
    stages = () if ON_CPU else range(4)
    cases = {f"ZeRO {stage}": partial(fit_sharded, stage) for stage in stages}
    report({"fit": fit, **cases}, shown=os.environ.get("RANK", "0") == "0")
