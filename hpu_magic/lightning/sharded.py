"""Strategies that shard or split a model across multiple cards.

With ``FullyShardedDataParallel``, each card holds a shard of the parameters. With the
model-parallel strategy, the module's ``configure_model`` splits the model with ``fully_shard`` and
tensor parallelism.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from hpu_magic.errors import HPUError
from hpu_magic.lightning.parallel import FabricOverHCCL, StrategyOverHCCL, TrainerOverHCCL

FSDP = "hpu_fsdp"
"""Name of the strategies that shard a model."""
MODEL_PARALLEL = "hpu_model_parallel"
"""Name of the strategy for models that do their own sharding."""


class HPUFSDPPrecisionBase:
    """The precision of a sharded model on the device, with the parameters of ``FSDPPrecision``."""

    precision: str

    def __init__(self, precision: str = "32-true", scaler: Any = None) -> None:
        super().__init__(precision)  # type: ignore[call-arg]
        if precision == "16-mixed":
            from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

            self.scaler = scaler or ShardedGradScaler("hpu")
        elif scaler is not None:
            raise HPUError(f"scaler requires precision='16-mixed', not {precision!r}: remove it.")

    def forward_context(self) -> AbstractContextManager[Any]:
        """Run a step of the model in this precision."""
        if "mixed" not in self.precision:
            return super().forward_context()  # type: ignore[misc,no-any-return]
        dtype = torch.bfloat16 if self.precision == "bf16-mixed" else torch.float16
        return torch.autocast("hpu", dtype=dtype)


class _FullySharded(StrategyOverHCCL):
    """Run one process per Intel Gaudi card; each process holds a shard of the model.

    Accepts the parameters of Lightning's ``FSDPStrategy``; `process_group_backend` defaults to
    ``"hccl"``.
    """

    strategy_name = FSDP
    _options_name: str  # name of the attribute that contains FullyShardedDataParallel's options

    def setup_environment(self) -> None:
        """Acquire the card, connect to the other processes, and create a device mesh of cards.

        Lightning's strategy would create a mesh of CUDA devices.
        """
        options = getattr(self, self._options_name)
        sizes = options.get("device_mesh")
        if isinstance(sizes, tuple):
            del options["device_mesh"]
        super().setup_environment()
        if isinstance(sizes, tuple):
            from torch.distributed.device_mesh import init_device_mesh

            options["device_mesh"] = init_device_mesh("hpu", sizes)


class TrainerFSDPBase(TrainerOverHCCL, _FullySharded):  # noqa: D101 (below)
    __doc__ = _FullySharded.__doc__
    _options_name = "kwargs"


class FabricFSDPBase(FabricOverHCCL, _FullySharded):  # noqa: D101 (below)
    __doc__ = _FullySharded.__doc__
    _options_name = "_fsdp_kwargs"


class TrainerModelParallelBase(TrainerOverHCCL):
    """Run one process per Intel Gaudi card; ``configure_model`` splits the model.

    Accepts the parameters of Lightning's ``ModelParallelStrategy``; `process_group_backend`
    defaults to ``"hccl"``.
    """

    strategy_name = MODEL_PARALLEL


class FabricModelParallelBase(FabricOverHCCL):
    """Run one process per Intel Gaudi card; a user-supplied function splits the model.

    Accepts the parameters of Lightning's ``ModelParallelStrategy``; `process_group_backend`
    defaults to ``"hccl"``.
    """

    strategy_name = MODEL_PARALLEL
