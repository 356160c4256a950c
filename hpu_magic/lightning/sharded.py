"""Strategies that shard a model over several cards or split it.

``FullyShardedDataParallel`` keeps a shard of the parameters on each card. With the other strategy,
the module's ``configure_model`` splits the model by ``fully_shard`` and tensor parallelism.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from hpu_magic.errors import HPUError
from hpu_magic.lightning.parallel import FabricOverHCCL, StrategyOverHCCL, TrainerOverHCCL

FSDP = "hpu_fsdp"
"""The name of the strategies that shard a model."""
MODEL_PARALLEL = "hpu_model_parallel"
"""The name of the strategies for models that split themselves."""


class HPUFSDPPrecisionBase:
    """The precision of a sharded model on the card.

    Has the parameters of Lightning's ``FSDPPrecision``: `precision`, and `scaler` with
    ``"16-mixed"``.
    """

    precision: str

    def __init__(self, precision: str = "32-true", scaler: Any = None) -> None:
        super().__init__(precision)  # type: ignore[call-arg]
        if precision == "16-mixed":
            from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

            self.scaler = scaler or ShardedGradScaler("hpu")
        elif scaler is not None:
            raise HPUError(f"scaler is for precision='16-mixed', not for {precision!r}: remove it.")

    def forward_context(self) -> AbstractContextManager[Any]:
        """Run a step of the model under this precision."""
        if "mixed" not in self.precision:
            return super().forward_context()  # type: ignore[misc,no-any-return]
        dtype = torch.bfloat16 if self.precision == "bf16-mixed" else torch.float16
        return torch.autocast("hpu", dtype=dtype)


class _FullySharded(StrategyOverHCCL):
    """Creates the device mesh over cards; Lightning's ``FSDPStrategy`` uses CUDA devices."""

    def setup_environment(self) -> None:
        """Take this process's card, connect to the other processes, and create the device mesh."""
        options = self._options_of_fsdp()
        sizes = options.get("device_mesh")
        if isinstance(sizes, tuple):
            del options["device_mesh"]
        super().setup_environment()
        if isinstance(sizes, tuple):
            from torch.distributed.device_mesh import init_device_mesh

            options["device_mesh"] = init_device_mesh("hpu", sizes)

    def _options_of_fsdp(self) -> dict[str, Any]:
        raise NotImplementedError


class TrainerFSDPBase(TrainerOverHCCL, _FullySharded):
    """One process on each of several Intel Gaudi cards, each with a shard of the model.

    Has the parameters of Lightning's ``FSDPStrategy``, with ``"hccl"`` as
    `process_group_backend`.
    """

    strategy_name = FSDP

    kwargs: dict[str, Any]

    def _options_of_fsdp(self) -> dict[str, Any]:
        return self.kwargs


class FabricFSDPBase(FabricOverHCCL, _FullySharded):
    """One process on each of several Intel Gaudi cards, each with a shard of the model.

    Has the parameters of Lightning's ``FSDPStrategy``, with ``"hccl"`` as
    `process_group_backend`.
    """

    strategy_name = FSDP

    _fsdp_kwargs: dict[str, Any]

    def _options_of_fsdp(self) -> dict[str, Any]:
        return self._fsdp_kwargs


class TrainerModelParallelBase(TrainerOverHCCL):
    """One process on each of several Intel Gaudi cards; ``configure_model`` splits the model.

    Has the parameters of Lightning's ``ModelParallelStrategy``, with ``"hccl"`` as
    `process_group_backend`.
    """

    strategy_name = MODEL_PARALLEL


class FabricModelParallelBase(FabricOverHCCL):
    """One process on each of several Intel Gaudi cards; a function splits the model.

    Has the parameters of Lightning's ``ModelParallelStrategy``, with ``"hccl"`` as
    `process_group_backend`.
    """

    strategy_name = MODEL_PARALLEL
