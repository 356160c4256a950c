"""Strategies and precisions for training with DeepSpeed's ZeRO optimizers over ``hccl``.

The classes adapt Lightning's DeepSpeed classes, which support only CUDA. DeepSpeed is imported when
a strategy is created.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from hpu_magic import units
from hpu_magic.errors import HPUError, failed_to_write
from hpu_magic.lightning import fp8
from hpu_magic.lightning.fp8_conversion import FP8Conversion
from hpu_magic.lightning.parallel import FabricOverHCCL, StrategyOverHCCL, TrainerOverHCCL
from hpu_magic.runtime.device import device as card

DEEPSPEED = "hpu_deepspeed"
"""Name of the strategies that train with DeepSpeed."""
PRECISIONS = ("32-true", "bf16-mixed", "bf16-true", "16-mixed", "16-true", "fp8")
"""The precisions of DeepSpeed's strategies."""
_BF16 = ("bf16-mixed", "bf16-true", "fp8")


class HPUDeepSpeedPrecisionBase(FP8Conversion):
    """The precision of a model that is trained with DeepSpeed.

    DeepSpeed converts the parameters to the 16-bit dtype, keeps float32 copies of them in its
    optimizer, scales losses in float16, and clips gradients.

    Parameters
    ----------
    precision
        ``"32-true"``, ``"bf16-mixed"``, ``"bf16-true"``, ``"16-mixed"``, ``"16-true"``, or
        ``"fp8"``, which is like ``"bf16-mixed"`` but layers of the vendor's Transformer Engine
        compute in FP8.
    device
        Device type; it must be ``"hpu"``.
    recipe
        With ``"fp8"``: how to compute the scales; a ``DelayedScaling`` or a dictionary of its
        arguments.
    replace_layers
        With ``"fp8"``: whether to replace linear layers with Transformer Engine layers, in
        `convert_modules` and at the start of a fit.

    Raises
    ------
    HPUError
        The precision is unknown, this card does not support it, or it does not support one of the
        options.
    """

    def __init__(
        self,
        precision: str = "32-true",
        device: str = "hpu",
        recipe: Mapping[str, Any] | Any | None = None,
        replace_layers: bool = False,
    ) -> None:
        precision = _SHORT.get(str(precision), precision)
        if precision not in PRECISIONS:
            raise HPUError(
                f"precision={precision!r} is not supported by DeepSpeed on hpu: "
                f"write {', '.join(map(repr, PRECISIONS[:-1]))} or {PRECISIONS[-1]!r}."
            )
        if device != "hpu":
            raise HPUError(f"device must be 'hpu', got {device!r}; remove it.")
        if precision in ("16-mixed", "16-true") and card.generation() == "GAUDI":
            raise HPUError(
                f"precision={precision!r} needs a Gaudi2 or later card, but this machine has "
                "GAUDI: write precision='bf16-mixed'."
            )
        fp8.check_options(precision, options=recipe is not None or replace_layers)
        super().__init__("bf16-mixed" if precision == "fp8" else precision)  # type: ignore[call-arg]
        self.precision = precision
        self.device = device
        self._set_conversion(recipe, replace_layers)

    def tensor_init_context(self) -> AbstractContextManager[Any]:
        """Create tensors in the dtype of the model's parameters."""
        if self.precision == "fp8":  # the parameters are converted later
            return nullcontext()
        return super().tensor_init_context()  # type: ignore[misc,no-any-return]

    def forward_context(self) -> AbstractContextManager[Any]:
        """Run a step of the model in this precision."""
        if self.precision == "fp8" and not self._infers:
            return fp8.autocast(self.recipe)  # type: ignore[no-any-return]
        return super().forward_context()  # type: ignore[misc,no-any-return]


_SHORT = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


class _DeepSpeed(StrategyOverHCCL):
    """Run one process per Intel Gaudi card, with DeepSpeed's ZeRO optimizers.

    Accepts the parameters of Lightning's ``DeepSpeedStrategy``; `process_group_backend` defaults to
    ``"hccl"``, and `parallel_hpus` is another name for `parallel_devices`.

    Raises
    ------
    HPUError
        Both ``parallel_hpus`` and ``parallel_devices`` are set, DeepSpeed uses another accelerator,
        or the configuration offloads to disk.
    ModuleNotFoundError
        DeepSpeed is not installed.
    """

    strategy_name = DEEPSPEED
    config: dict[str, Any]
    _precision_name: str  # name of the attribute that contains the precision plug-in

    def __init__(
        self, *args: Any, parallel_hpus: list[torch.device] | None = None, **kwargs: Any
    ) -> None:
        _require_deepspeed()
        if parallel_hpus is not None:
            if kwargs.get("parallel_devices") is not None:
                raise HPUError(
                    "parallel_hpus and parallel_devices are the same option; remove one of them."
                )
            kwargs["parallel_devices"] = parallel_hpus
        super().__init__(*args, **kwargs)
        _refuse_disk(self.config)

    def _set_up_device(self) -> None:
        """Select the card, and make DeepSpeed use the process group that was created."""
        import deepspeed

        self._accelerator.setup_device(self.root_device)
        self._set_node_environment_variables()  # type: ignore[attr-defined]
        deepspeed.init_distributed(self._process_group_backend, timeout=self._timeout)

    def _format_config(self) -> None:
        """Complete DeepSpeed's configuration with the precision."""
        if getattr(self, self._precision_name).precision in _BF16:
            self.config.setdefault("bf16", {"enabled": True})
        super()._format_config()  # type: ignore[misc]


class TrainerDeepSpeedBase(TrainerOverHCCL, _DeepSpeed):  # noqa: D101 (below)
    __doc__ = _DeepSpeed.__doc__
    _precision_name = "precision_plugin"

    def save_checkpoint(self, checkpoint: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Save the training state; see `_writing` for errors."""
        with _writing(filepath):
            super().save_checkpoint(checkpoint, filepath, *args, **kwargs)  # type: ignore[misc]

    def _initialize_deepspeed_inference(self, model: Any) -> None:
        # After a fit, Lightning moves the parameters that ZeRO stage 3 does not shard to the CPU.
        model.to(self.root_device)
        super()._initialize_deepspeed_inference(model)  # type: ignore[misc]
        sharded = self.deepspeed_engine.optimizer  # type: ignore[attr-defined]
        if sharded is not None and not hasattr(sharded, "_restore_from_bit16_weights"):
            # In ZeRO stage 3, DeepSpeed calls this method after it has loaded a checkpoint. A dummy
            # optimizer has no float32 weights to restore.
            sharded._restore_from_bit16_weights = lambda: None


class FabricDeepSpeedBase(FabricOverHCCL, _DeepSpeed):  # noqa: D101 (below)
    __doc__ = _DeepSpeed.__doc__
    _precision_name = "precision"

    def save_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """Save the training state; see `_writing` for errors."""
        with _writing(path):
            super().save_checkpoint(path, *args, **kwargs)  # type: ignore[misc]

    def _set_up_device(self) -> None:
        super()._set_up_device()
        self._format_config()
        self._config_initialized = True


@contextmanager
def _writing(checkpoint: Any) -> Iterator[None]:
    """Raise an error that names the disk if PyTorch cannot write a file of a checkpoint."""
    try:
        yield
    except RuntimeError as error:
        if not failed_to_write(str(error)):
            raise
        path = Path(checkpoint).absolute()
        folder = next(each for each in (path, *path.parents) if each.exists())
        free = units.size(shutil.disk_usage(folder).free)
        raise HPUError(
            f"The checkpoint {str(checkpoint)!r} cannot be written, and its disk has {free} left: "
            "free space on the disk, or save to another folder."
        ) from error


def _refuse_disk(config: Mapping[str, Any]) -> None:
    """Raise an error if a DeepSpeed configuration offloads to disk."""
    for name in ("offload_optimizer", "offload_param"):
        offload = (config.get("zero_optimization") or {}).get(name) or {}
        if offload.get("device") == "nvme":
            raise HPUError(
                f"{name} is set to 'nvme', but DeepSpeed has no asynchronous I/O operator for hpu, "
                "which it needs to offload to the disk; offload to 'cpu'."
            )


def _require_deepspeed() -> None:
    """Raise an error if DeepSpeed is not installed, or uses another accelerator."""
    if importlib.util.find_spec("deepspeed") is None:
        raise ModuleNotFoundError(
            "strategy='hpu_deepspeed' needs DeepSpeed, which is not installed: run "
            "DS_BUILD_OPS=0 pip install deepspeed (in a notebook, use %pip install deepspeed).",
            name="deepspeed",
        )
    from deepspeed.accelerator import get_accelerator

    name = get_accelerator().device_name()
    if name != "hpu":
        raise HPUError(
            f"DeepSpeed uses the accelerator {name!r} instead of 'hpu'; unset DS_ACCELERATOR, and "
            "import hpu_magic.lightning before deepspeed."
        )
