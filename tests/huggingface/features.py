"""What runs, differs or is refused, by library and feature: each row is proven by tests."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

_Test = TypeVar("_Test", bound=Callable[..., object])
_FOLDER = Path(__file__).parent


class Status(Enum):
    """What becomes of a program that uses a feature."""

    RUNS = "runs"
    DIFFERS = "differs"
    REFUSED = "refused"


@dataclass(frozen=True)
class Feature:
    """A row of the page; what differs or is refused says how, or why."""

    library: str
    name: str
    status: Status = Status.RUNS
    note: str = ""


TRANSFORMERS, ACCELERATE, PEFT = "transformers", "accelerate", "peft"
DIFFUSERS, SENTENCE_TRANSFORMERS = "diffusers", "sentence-transformers"
TRL, OPTIMUM_HABANA = "trl", "optimum-habana"

FEATURES = [
    Feature(TRANSFORMERS, "`Trainer`: train, evaluate, predict"),
    Feature(TRANSFORMERS, "`Trainer`: bf16"),
    Feature(TRANSFORMERS, "`Trainer`: gradient accumulation"),
    Feature(TRANSFORMERS, "`Trainer`: gradient checkpointing"),
    Feature(TRANSFORMERS, "`Trainer`: checkpoints and resuming"),
    Feature(TRANSFORMERS, "`Trainer`: memory metrics"),
    Feature(TRANSFORMERS, "`Trainer`: live panel with `%%hpu_fit` and `hpu_magic.fit`"),
    Feature(TRANSFORMERS, "`Trainer` on two cards, with `torchrun` and `accelerate launch`"),
    Feature(
        TRANSFORMERS,
        "`Trainer` on two cards: classifiers",
        note="Set `average_tokens_across_devices=False`. Otherwise the library multiplies a "
        "classifier's loss by the number of cards, on every kind of device.",
    ),
    Feature(TRANSFORMERS, "`Trainer` on two cards: `fsdp`"),
    Feature(
        TRANSFORMERS, "`Trainer`: `torch_compile=True`", note="Lazy mode has no compile backend."
    ),
    *(
        Feature(TRANSFORMERS, f"{model}: training step and inference")
        for model in (
            "Llama, GPT-2",
            "BERT, ViT",
            "T5, Whisper",
            "Mixtral, Qwen2-MoE (mixtures of experts)",
            "Llava (text with images)",
        )
    ),
    Feature(TRANSFORMERS, "`generate`: greedy, sampling, beam search (Llama, GPT-2, T5)"),
    Feature(TRANSFORMERS, "`generate`: dynamic, static and no cache"),
    Feature(
        TRANSFORMERS,
        "`generate` in HPU Graphs, with `%hpu_wrap --no-train` and `hpu_magic.wrap`",
        note="Lazy mode with a static cache. Dynamic caches and sliding windows run without "
        "graphs.",
    ),
    Feature(
        TRANSFORMERS,
        "models in HPU Graphs, called directly",
        note="Lazy mode. Prompts with images run without graphs.",
    ),
    Feature(
        TRANSFORMERS,
        "`generate`: cache offloaded to the host",
        Status.REFUSED,
        "The library requires CUDA streams, even on the CPU.",
    ),
    Feature(
        TRANSFORMERS,
        "attention: eager, SDPA, flex",
        note="Flex attention is compiled: it needs eager mode and an earlier call of "
        "`is_torch_hpu_available()`, which makes the library compile for the device.",
    ),
    Feature(TRANSFORMERS, "`pipeline`: text generation and classification"),
    Feature(TRANSFORMERS, "`%hpu_to` and `hpu_magic.to` of a pipeline"),
    Feature(TRANSFORMERS, "`%hpu_memory`: modules of a model and its key/value cache"),
    Feature(TRANSFORMERS, '`device_map="hpu"`, `"auto"`'),
    Feature(TRANSFORMERS, '`device_map="auto"` with offload to the host and to disk'),
    Feature(
        TRANSFORMERS,
        "`device_map` that names a second card",
        Status.REFUSED,
        "A process owns one card.",
    ),
    Feature(
        TRANSFORMERS,
        'a model on `meta`, moved by `.to("hpu")`',
        Status.REFUSED,
        "The model has no data. Use `to_empty` or `from_pretrained`.",
    ),
    Feature(
        TRANSFORMERS,
        "gated, missing or unreachable downloads",
        Status.REFUSED,
        "A sentence below the error names the cause and a fix.",
    ),
    Feature(TRANSFORMERS, "`save_pretrained`, `from_pretrained`, safetensors straight to hpu"),
    Feature(ACCELERATE, "`Accelerator`: `prepare`, `backward`, clipping, scheduler"),
    Feature(ACCELERATE, "mixed precision bf16, fp16"),
    Feature(ACCELERATE, "gradient accumulation"),
    Feature(ACCELERATE, "`dynamo_backend`", note="Lazy mode has no compile backend."),
    Feature(ACCELERATE, "`save_state`, `load_state`, with random number generators"),
    Feature(ACCELERATE, "offload to the host and to disk"),
    Feature(ACCELERATE, "`init_empty_weights`, `load_checkpoint_and_dispatch`"),
    Feature(
        ACCELERATE,
        "device map that names a second card as number 1",
        Status.DIFFERS,
        "The library reads every number as the process's one card.",
    ),
    Feature(ACCELERATE, "`find_executable_batch_size`"),
    Feature(ACCELERATE, "`gather`, `reduce`, `profile`"),
    Feature(ACCELERATE, "`accelerate launch` on several cards"),
    Feature(ACCELERATE, "`notebook_launcher` on several cards"),
    Feature(ACCELERATE, "FSDP plug-in, versions 1 and 2"),
    Feature(
        ACCELERATE,
        "`accelerate test`",
        note="Lazy mode needs `PT_HPU_ENABLE_VALID_DATA_RANGE_CHECK=0`, also for "
        "`dispatch_batches=True` on several cards: the library copies uninitialized memory to the "
        "card, whose values may not fit in int32.",
    ),
    Feature(
        ACCELERATE,
        "`accelerate env`",
        Status.DIFFERS,
        "The library reports CUDA and other devices, but not hpu.",
    ),
    Feature(
        ACCELERATE,
        "`accelerate estimate-memory`",
        Status.REFUSED,
        "It looks for the model on the Hub and reports it as gated if there is no network.",
    ),
    Feature(PEFT, "LoRA: training step, saving, loading, merging, `%hpu_to`"),
    Feature(DIFFUSERS, "`StableDiffusionPipeline`: text to image, float32 and bf16"),
    Feature(DIFFUSERS, "`DDPMPipeline`: training step of its UNet, image generation"),
    Feature(
        DIFFUSERS,
        '`.to("hpu")` in a program with no other code for the card',
        note="The library enables GPU migration here, but too late: `import torch` has already "
        "loaded the bridge.",
    ),
    Feature(DIFFUSERS, "`%hpu_to` and `hpu_magic.to` of a pipeline"),
    Feature(DIFFUSERS, '`device_map="hpu"`, `"balanced"`'),
    Feature(
        DIFFUSERS,
        "`%hpu_to` of a pipeline loaded with a device map",
        Status.REFUSED,
        "The library's hooks move inputs to the old devices. Call `reset_device_map()` first.",
    ),
    Feature(DIFFUSERS, "`enable_model_cpu_offload`, `enable_sequential_cpu_offload`"),
    Feature(
        SENTENCE_TRANSFORMERS,
        "`SentenceTransformer.encode`",
        Status.REFUSED,
        "On hpu the library always captures HPU Graphs. Eager mode has none, and in lazy mode "
        "transformers reads the mask on the host during the capture, which is not allowed.",
    ),
    Feature(
        SENTENCE_TRANSFORMERS,
        "`SentenceTransformer.encode` after `model.is_hpu_graph_enabled = True`",
        note="The library assumes that the model is already captured and runs it unchanged.",
    ),
    Feature(SENTENCE_TRANSFORMERS, "`CrossEncoder`: `predict`, `rank`"),
    Feature(SENTENCE_TRANSFORMERS, "`%hpu_to` of a model"),
    Feature(SENTENCE_TRANSFORMERS, "`SentenceTransformerTrainer`: fit with live panel"),
    Feature(TRL, "`SFTTrainer`: fit with live panel, with `%%hpu_fit` and `hpu_magic.fit`"),
    Feature(TRL, "`SFTTrainer`: LoRA of peft"),
    Feature(TRL, "`DPOTrainer`: fit with live panel"),
    Feature(OPTIMUM_HABANA, "`GaudiTrainer`: fused AdamW and clip norm"),
    Feature(
        OPTIMUM_HABANA,
        "`GaudiTrainer`: PyTorch's AdamW",
        Status.DIFFERS,
        "Without the fused clip norm the library reports no gradient norms.",
    ),
    Feature(OPTIMUM_HABANA, "`GaudiTrainer`: gradient accumulation"),
    Feature(OPTIMUM_HABANA, "`GaudiTrainer`: resuming from a checkpoint"),
    Feature(OPTIMUM_HABANA, "`GaudiTrainer`: LoRA of peft"),
    Feature(OPTIMUM_HABANA, "`GaudiTrainer`: bf16, as an argument and in the Gaudi configuration"),
    Feature(
        OPTIMUM_HABANA,
        "`GaudiTrainer`: `adjust_throughput`, `non_blocking_data_copy`, `pipelining_fwd_bwd`",
    ),
    Feature(
        OPTIMUM_HABANA,
        "`GaudiTrainer`: HPU Graphs in training and inference",
        note="Lazy mode only: the library refuses them in eager mode.",
    ),
    Feature(OPTIMUM_HABANA, "`GaudiTrainer`: live panel with `%%hpu_fit` and `hpu_magic.fit`"),
    Feature(
        OPTIMUM_HABANA,
        "`GaudiTrainer`: `torch_compile`",
        note="Lazy mode has no compile backend.",
    ),
    Feature(OPTIMUM_HABANA, "`GaudiTrainer` on two cards, with the runner of `gaudi_spawn.py`"),
    Feature(OPTIMUM_HABANA, "`generate`: greedy, sampling"),
    Feature(
        OPTIMUM_HABANA,
        "`generate`: beam search",
        note="Lazy mode only: the library adds a CPU tensor to a tensor on the card, which eager "
        "mode refuses.",
    ),
    Feature(
        OPTIMUM_HABANA,
        "`generate`: `reuse_cache`, `attn_softmax_bf16`, `use_flash_attention`, `trim_logits`",
    ),
    Feature(
        OPTIMUM_HABANA,
        "`generate`: `bucket_size`",
        Status.DIFFERS,
        "The tokens equal the CPU's, followed by padding up to the end of the last bucket.",
    ),
    Feature(
        OPTIMUM_HABANA,
        "`generate`: HPU Graphs, with buckets, `limit_hpu_graphs`",
        note="Lazy mode only: eager mode refuses HPU Graphs.",
    ),
    Feature(
        OPTIMUM_HABANA,
        "`adapt_transformers_to_gaudi`: training step and inference of Llama, GPT-2, BERT, T5, "
        "ViT, Whisper",
    ),
    Feature(
        OPTIMUM_HABANA,
        "`adapt_transformers_to_gaudi`: inference of Mixtral, Qwen2-MoE",
        note='Mixtral needs `attn_implementation="eager"`: with the default, SDPA, the library '
        "does not mask later tokens.",
    ),
    Feature(
        OPTIMUM_HABANA,
        "`adapt_transformers_to_gaudi`: training of Mixtral, Qwen2-MoE",
        Status.DIFFERS,
        "Experts and routers get no gradients: `torch.ops.hpu.mixture_of_experts` returns none.",
    ),
    Feature(OPTIMUM_HABANA, "`GaudiStableDiffusionPipeline`, float32 and autocast to bf16"),
    Feature(
        OPTIMUM_HABANA,
        "`GaudiStableDiffusionPipeline`: HPU Graphs",
        note="Lazy mode only: eager mode refuses HPU Graphs.",
    ),
    Feature(
        OPTIMUM_HABANA,
        "`SentenceTransformer.encode` of sentence-transformers 3.3",
        note="Lazy mode only, in HPU Graphs: eager mode refuses them.",
    ),
    Feature(OPTIMUM_HABANA, "fp8 with an Intel Neural Compressor configuration"),
]


def proves(library: str, *names: str) -> Callable[[_Test], _Test]:
    """Say which features a test proves; `proofs` finds it in the test's source."""
    known = {(feature.library, feature.name) for feature in FEATURES}
    for name in names:
        if (library, name) not in known:
            raise ValueError(f"No feature of {library} is called {name!r}: give it a row first.")
    return lambda test: test


def proofs() -> Iterator[tuple[str, str, str]]:
    """Yield library, feature and test of every use of `proves` in this folder."""
    for path in sorted(_FOLDER.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for library, name in _proven_by(node):
                    yield library, name, f"{path.name}::{node.name}"


def _proven_by(test: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    for decorator in test.decorator_list:
        if (
            isinstance(decorator, ast.Call)
            and isinstance(decorator.func, ast.Name)
            and decorator.func.id == "proves"
        ):
            library, *names = (_value(argument) for argument in decorator.args)
            yield from ((library, name) for name in names)


def _value(argument: ast.expr) -> str:
    """Return the text that a literal, or the name of a library in this module, stands for."""
    if isinstance(argument, ast.Name):
        return str(globals()[argument.id])
    return str(ast.literal_eval(argument))
