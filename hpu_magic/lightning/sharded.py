"""Models that are sharded over several cards, or split among them, by Lightning's own strategies.

``FullyShardedDataParallel`` keeps a shard of the parameters on each card; the other strategy leaves
the cut to the module's ``configure_model``, with ``fully_shard`` and tensor parallelism.
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
"""The name of the strategies that leave the cut to the model."""


class HPUFSDPPrecisionBase:
    """How a sharded model computes on the card.

    Takes the parameters of Lightning's ``FSDPPrecision``: `precision`, and `scaler` with
    ``"16-mixed"``.
    """

    precision: str

    def __init__(self, precision: str = "32-true", scaler: Any = None) -> None:
        super().__init__(precision)  # type: ignore[call-arg]
        if precision == "16-mixed":
            from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

            self.scaler = scaler or ShardedGradScaler("hpu")
        elif scaler is not None:
            raise HPUError(
                f"A scaler is for precision='16-mixed', and this is {precision!r}: leave it out."
            )

    def forward_context(self) -> AbstractContextManager[Any]:
        """Run a step of the model under this precision."""
        if "mixed" not in self.precision:
            return super().forward_context()  # type: ignore[misc,no-any-return]
        dtype = torch.bfloat16 if self.precision == "bf16-mixed" else torch.float16
        return torch.autocast("hpu", dtype=dtype)


class _FullySharded(StrategyOverHCCL):
    """Lightning's ``FSDPStrategy`` lays its mesh over CUDA devices."""

    def setup_environment(self) -> None:
        """Take this process's card, meet the others, and lay the mesh over the cards."""
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

    Takes the parameters of Lightning's ``FSDPStrategy``, with ``"hccl"`` as
    `process_group_backend`.
    """

    strategy_name = FSDP

    kwargs: dict[str, Any]

    def _options_of_fsdp(self) -> dict[str, Any]:
        return self.kwargs


class FabricFSDPBase(FabricOverHCCL, _FullySharded):
    """One process on each of several Intel Gaudi cards, each with a shard of the model.

    Takes the parameters of Lightning's ``FSDPStrategy``, with ``"hccl"`` as
    `process_group_backend`.
    """

    strategy_name = FSDP

    _fsdp_kwargs: dict[str, Any]

    def _options_of_fsdp(self) -> dict[str, Any]:
        return self._fsdp_kwargs


class TrainerModelParallelBase(TrainerOverHCCL):
    """One process on each of several Intel Gaudi cards, as ``configure_model`` splits the model.

    Takes the parameters of Lightning's ``ModelParallelStrategy``, with ``"hccl"`` as
    `process_group_backend`.
    """

    strategy_name = MODEL_PARALLEL


class FabricModelParallelBase(FabricOverHCCL):
    """One process on each of several Intel Gaudi cards, as a function splits the model.

    Takes the parameters of Lightning's ``ModelParallelStrategy``, with ``"hccl"`` as
    `process_group_backend`.
    """

    strategy_name = MODEL_PARALLEL
