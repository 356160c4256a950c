"""The features of the table, and the functions that run them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

FLOAT32, HALF = 1e-5, 1e-2


@dataclass(frozen=True)
class Phase:
    """Processes that run one function, started by a launcher."""

    function: str  # module.function in this folder
    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    ranks: int = 2
    launcher: str = "ranks"  # or "deepspeed", "python"


@dataclass(frozen=True)
class Limit:
    """Why DeepSpeed cannot run a feature on cards, and a part of its error message.

    Unless the feature is ``alone``, the CPU accelerator must fail, too.
    """

    reason: str
    error: str


@dataclass(frozen=True)
class Feature:
    """A row of the table: phases that run one after another in the same folder.

    The numbers of all ranks and phases are compared with those of ``reference`` on the accelerator
    ``compared``; the default reference is the row itself. With ``alone``, nothing is compared, and
    only the checks of the functions themselves count. ``against`` describes what is compared
    instead of losses.
    """

    name: str
    phases: tuple[Phase, ...]
    tolerance: float = FLOAT32
    reference: str = ""
    compared: str = "cpu"
    alone: bool = False
    against: str = ""
    lazy: bool = False
    card: str = "gaudi2"
    limit: Limit | None = None


def zero(stage: int, **more: Any) -> dict[str, Any]:
    """Return the configuration of a ZeRO stage, with buckets that are smaller than the model."""
    sizes = {
        "reduce_bucket_size": 2000,
        "allgather_bucket_size": 2000,
        "stage3_param_persistence_threshold": 0,
        "stage3_prefetch_bucket_size": 1000,
        "sub_group_size": 4000,
    }
    return {"zero_optimization": {"stage": stage, **(sizes if stage else {}), **more}}


def buckets(stage: int, **more: Any) -> dict[str, Any]:
    """Return the configuration of a ZeRO stage, with buckets smaller than `memory.Wide`."""
    names = "reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_max_reuse_distance"
    sizes = dict.fromkeys(names, 400000)
    return {"zero_optimization": {"stage": stage, "sub_group_size": 400_000, **sizes, **more}}


NO_OPERATOR = "This op had not been implemented on HPU backend"
NO_DISK = Limit("DeepSpeed has no asynchronous I/O operator for hpu", NO_OPERATOR)
NO_FP8 = Limit(
    "DeepSpeed scales values to 448, but the largest FP8 value of Gaudi 2 is 240",
    "The relative error of the values is 0.4",
)
NO_INTEGERS = Limit("DeepSpeed has no integer quantizer for hpu or the CPU", NO_OPERATOR)
NO_SCALE = Limit("the class does not pass a scale to DeepSpeed's operator for hpu", "argument")
NO_ONE_BIT = Limit(
    "DeepSpeed 0.19 does not have this optimizer", "is not a supported DeepSpeed Optimizer"
)
NO_ROTARY = Limit(
    "DeepSpeed's kernels for Llama pass arguments that transformers no longer accepts",
    "LlamaRotaryEmbedding.__init__() got an unexpected keyword argument",
)
BF16 = {"bf16": {"enabled": True}}
HOST, DISK = {"device": "cpu"}, {"device": "nvme"}
TRAIN = "training.train"


def _one(name: str, function: str, settings: dict[str, Any], **more: Any) -> Feature:
    of_phase = {key: more.pop(key) for key in ("options", "ranks", "launcher") if key in more}
    return Feature(name, (Phase(function, settings, **of_phase),), **more)


def _at_stages(
    stages: Iterable[int], name: str, function: str, *, reference: str = "", **more: Any
) -> Iterator[Feature]:
    """Yield a row for each ZeRO stage, whose number replaces the braces in the names."""
    for stage in stages:
        yield _one(
            name.format(stage), function, zero(stage), reference=reference.format(stage), **more
        )


FEATURES = (
    _one("DDP", "training.distributed_data_parallel", {}),
    *_at_stages(range(4), "ZeRO {}", TRAIN),
    *_at_stages(range(4), "ZeRO {} and DDP", TRAIN, reference="DDP", compared="hpu"),
    *_at_stages(range(4), "ZeRO {}, lazy mode", TRAIN, reference="ZeRO {}", lazy=True),
    _one("ZeRO 1, DeepSpeed's AdamW", "training.fused", zero(1)),
    *(_one(f"ZeRO {stage}, bf16", TRAIN, zero(stage) | BF16, tolerance=HALF) for stage in range(4)),
    *_at_stages((0, 2, 3), "ZeRO {}, fp16 with loss scaling", "training.scaled", tolerance=HALF),
    *(
        _one(
            f"ZeRO {stage}, memory{dtype}",
            "memory.peak",
            buckets(stage) | more,
            tolerance=0.03,
            against="`%hpu_estimate`",
        )
        for dtype, more in {"": {}, ", bf16": BF16}.items()
        for stage in range(4)
    ),
    *(
        _one(
            f"ZeRO {stage}, optimizer offloaded to the host",
            TRAIN,
            zero(stage, offload_optimizer=HOST),
        )
        for stage in (1, 2, 3)
    ),
    _one(
        "ZeRO 3, optimizer and parameters offloaded to the host",
        TRAIN,
        zero(3, offload_optimizer=HOST, offload_param=HOST),
    ),
    _one(
        "ZeRO 3, optimizer offloaded to the disk",
        TRAIN,
        zero(3, offload_optimizer=DISK),
        options={"offload": "offload_optimizer"},
        alone=True,
        limit=NO_DISK,
    ),
    _one(
        "ZeRO 3, optimizer and parameters offloaded to the disk",
        TRAIN,
        zero(3, offload_optimizer=DISK, offload_param=DISK),
        options={"offload": "offload_optimizer,offload_param"},
        alone=True,
        limit=NO_DISK,
    ),
    *_at_stages((0, 2, 3), "ZeRO {}, gradient accumulation and clipping", "training.accumulate"),
    _one("Activation checkpointing", "training.checkpointed", zero(2)),
    _one(
        "Activation checkpointing on the host",
        "training.checkpointed",
        zero(2),
        options={"checkpoint_in_cpu": True},
        reference="Activation checkpointing",  # the CPU accelerator empties the saved inputs
    ),
    _one("Pipeline of two stages", "parallel.pipeline", {}),
    _one("Pipeline of two stages, two replicas, ZeRO 1", "parallel.pipeline", zero(1), ranks=4),
    _one("Ulysses sequence parallelism", "parallel.ulysses", {}),
    _one("Automatic tensor parallelism", "parallel.tensor_parallel", zero(1)),
    _one("MoE with expert parallelism, top 1", "parallel.experts", {}, options={"k": 1}),
    _one("MoE with expert parallelism, top 2", "parallel.experts", {}, options={"k": 2}),
    _one("MoE, two groups of two experts, ZeRO 2", "parallel.experts", zero(2), ranks=4),
    _one(
        "MoE, two groups of two experts, ZeRO 2, bf16",
        "parallel.experts",
        zero(2) | BF16,
        ranks=4,
        tolerance=HALF,
    ),
    _one("ZeRO++, hierarchical partitioning", TRAIN, zero(3, zero_hpz_partition_size=2), ranks=4),
    _one(
        "ZeRO++, quantized weights", TRAIN, zero(3, zero_quantized_weights=True), limit=NO_INTEGERS
    ),
    _one(
        "ZeRO++, quantized gradients",
        TRAIN,
        zero(3, zero_quantized_gradients=True),
        reference="ZeRO 3",
        tolerance=HALF,
    ),
    _one("Quantizer operator", "parallel.quantize_integers", {}, ranks=1, limit=NO_INTEGERS),
    _one("FP8 quantizer operator", "parallel.quantize", {}, ranks=1, alone=True, limit=NO_FP8),
    _one(
        "FP8 quantizer operator, Gaudi 3",
        "parallel.quantize",
        {},
        ranks=1,
        alone=True,
        card="gaudi3",
    ),
    _one("FP_Quantize", "parallel.quantize_by_class", {}, ranks=1, limit=NO_SCALE),
    *(
        _one(
            f"{optimizer}, one-bit communication",
            "parallel.compressed",
            {},
            options={"optimizer": optimizer},
            limit=NO_ONE_BIT,
        )
        for optimizer in ("OneBitAdam", "OneBitLamb", "ZeroOneAdam")
    ),
    *(
        Feature(
            f"ZeRO {stage}, checkpoint saved and resumed",
            tuple(Phase(f"saved.{name}", zero(stage)) for name in ("save", "resume")),
        )
        for stage in (0, 2, 3)
    ),
    Feature(
        "Universal checkpoint, ZeRO 1 to ZeRO 1 on four cards",
        (
            Phase("saved.save", zero(1)),
            Phase("saved.convert", ranks=1, launcher="python"),
            Phase("saved.resume", zero(1) | {"checkpoint": {"load_universal": True}}, ranks=4),
        ),
    ),
    Feature(
        "Universal checkpoint, ZeRO 3 on two cards to one card",
        (
            Phase("saved.save", zero(3)),
            Phase("saved.convert", ranks=1, launcher="python"),
            Phase("saved.resume", zero(3) | {"checkpoint": {"load_universal": True}}, ranks=1),
        ),
    ),
    *(
        Feature(
            f"ZeRO {stage}, zero_to_fp32",
            (
                Phase("saved.save", zero(stage)),
                Phase("saved.consolidate", ranks=1, launcher="python"),
            ),
        )
        for stage in (2, 3)
    ),
    _one("deepspeed launcher", TRAIN, zero(2), launcher="deepspeed", reference="ZeRO 2"),
    _one("init_inference", "parallel.inference", {}, ranks=1),
    _one("init_inference, two cards", "parallel.inference", {}, reference="init_inference"),
    _one("init_inference, GPT-2", "parallel.inference", {}, ranks=1, options={"gpt2": True}),
    _one(
        "init_inference with kernels, GPT-2",
        "parallel.inference",
        {},
        ranks=1,
        options={"gpt2": True, "replace_with_kernel_inject": True},
        reference="init_inference, GPT-2",
    ),
    _one(
        "init_inference with kernels, Llama",
        "parallel.inference",
        {},
        ranks=1,
        options={"replace_with_kernel_inject": True},
        limit=NO_ROTARY,
    ),
    *_at_stages((0, 2, 3), "ZeRO {}, engine.compile()", "training.compiled"),
    # On the CPU, accelerate does not start DeepSpeed's process group.
    *_at_stages((2, 3), "accelerate, ZeRO {}", "libraries.accelerate", reference="ZeRO {}"),
    *_at_stages((2, 3), "transformers Trainer, ZeRO {}", "libraries.trainer"),
    *_at_stages(
        (2, 3),
        "GaudiTrainer, ZeRO {}",
        "libraries.gaudi_trainer",
        reference="transformers Trainer, ZeRO {}",
    ),
    *_at_stages((2, 3), "Lightning, ZeRO {}", "libraries.lightning", reference="ZeRO {}"),
    *_at_stages(
        (2, 3),
        "%%hpu_workers, ZeRO {}",
        "libraries.cell",
        ranks=1,
        launcher="python",
        reference="ZeRO {}",
    ),
)
