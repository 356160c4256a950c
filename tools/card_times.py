"""Compare the time of steps of larger models in dry runs with estimates.

Usage: python tools/card_times.py [--cards N] [--mode MODE] [--inference] [STEP...]

Prints the time of each step from a dry run and from `hpu_magic.estimate`, and writes a summary into
the table in ``docs/simulator.md`` if all steps run. Fails if the times of a step differ by more
than 2 % and it is not in `DIFFERENT`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT / "tools"))

from differences import COLUMNS, LARGEST, row  # noqa: E402  (needs the path above)
from page_table import PageTable  # noqa: E402

PAGE = _ROOT / "docs" / "simulator.md"
MODES = ("eager", "lazy", "graphs", "compile")
CARDS = 8
"""The number of cards in the table."""
_TENSOR_PARALLEL = ("Llama-8B", "Mistral-7B", "Qwen2-7B")
_RUNS = 3
"""How often a model runs in a dry run of inference."""
_HOST_READS = ("GPT-2", "T5-base", *_TENSOR_PARALLEL)
"""Models that read values on the host."""
_TOO_LARGE = ("RoBERTa-large QA, DDP",)
"""Steps that do not fit if a captured graph keeps their intermediate results."""
DIFFERENT = {"MLP, DDP": "the compiled optimizer consists of many operators"}
"""Steps that are known to differ in compiled code, and the causes."""


@dataclass(frozen=True)
class Step:
    """A model, its inputs, and how cards share the work: ``"ddp"``, ``"fsdp"`` or ``"tp"``."""

    build: Callable[[], nn.Module]
    inputs: Callable[[], dict[str, torch.Tensor]]
    parallel: str


@dataclass(frozen=True)
class Times:
    """Time of a step in seconds, and the bytes that a card sends during the step."""

    dry_run: float
    estimate: float
    sent: int

    @property
    def difference(self) -> float:
        """Relative difference of the dry run's time."""
        return self.dry_run / self.estimate - 1


def _transformers(kind: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        model = getattr(transformers, kind)
        model = model(model.config_class(use_cache=False, **options))
        # Otherwise, a warning about an unknown loss divides compiled graphs.
        model.loss_type = model.loss_type or "ForCausalLM"
        return model.to(torch.bfloat16).train()

    return build


def _text(rows: int, length: int, **others: tuple[int, ...]) -> Callable[[], dict[str, Any]]:
    def inputs() -> dict[str, Any]:
        shapes = {"input_ids": (rows, length), **(others or {"labels": (rows, length)})}
        return {name: torch.ones(shape, dtype=torch.int64) for name, shape in shapes.items()}

    return inputs


def _pictures(rows: int, name: str) -> Callable[[], dict[str, Any]]:
    return lambda: {name: torch.ones(rows, 3, 224, 224, dtype=torch.bfloat16)}


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8192, 8192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.linear(x))


class _MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Layer() for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class _FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(8192, 32768), nn.Linear(32768, 8192, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down_proj(nn.functional.gelu(self.up_proj(x)))
        return y


def _feed_forward() -> nn.Module:
    return nn.Sequential(*(_FeedForward() for _ in range(8))).to(torch.bfloat16)


def _mlp() -> nn.Module:
    return _MLP().to(torch.bfloat16)


class _Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = [3, 64, 128, 256, 512, 1024]
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.GroupNorm(32, b), nn.ReLU())
            for a, b in pairwise(sizes)
        )
        self.head = nn.Linear(1024, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        out: torch.Tensor = self.head(x.mean((2, 3)))
        return out


_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
_LARGE |= {"intermediate_size": 4096}
_BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
_SEVEN = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
_ANSWERS = {"start_positions": (32,), "end_positions": (32,)}
STEPS = {
    "MLP, DDP": Step(_mlp, lambda: {"x": torch.ones(4096, 8192, dtype=torch.bfloat16)}, "ddp"),
    "CNN, DDP": Step(lambda: _Convolutions().to(torch.bfloat16), _pictures(512, "x"), "ddp"),
    "ViT-base, DDP": Step(
        _transformers("ViTForImageClassification"), _pictures(256, "pixel_values"), "ddp"
    ),
    "BERT-large, DDP": Step(_transformers("BertForMaskedLM", **_LARGE), _text(16, 512), "ddp"),
    "RoBERTa-large QA, DDP": Step(
        _transformers("RobertaForQuestionAnswering", max_position_embeddings=514, **_LARGE),
        _text(32, 384, **_ANSWERS),
        "ddp",
    ),
    "DistilBERT, DDP": Step(_transformers("DistilBertForMaskedLM"), _text(32, 512), "ddp"),
    "ELECTRA-base, DDP": Step(
        _transformers("ElectraForMaskedLM", embedding_size=768, **_BASE), _text(32, 512), "ddp"
    ),
    "ALBERT-xxlarge, DDP": Step(_transformers("AlbertForMaskedLM"), _text(8, 512), "ddp"),
    "BEiT-base, DDP": Step(
        _transformers("BeitForImageClassification"), _pictures(256, "pixel_values"), "ddp"
    ),
    "ConvNeXT-tiny, DDP": Step(
        _transformers("ConvNextForImageClassification"), _pictures(256, "pixel_values"), "ddp"
    ),
    "AST, DDP": Step(
        _transformers("ASTForAudioClassification"),
        lambda: {"input_values": torch.ones(32, 1024, 128, dtype=torch.bfloat16)},
        "ddp",
    ),
    "GPT-2, DDP": Step(_transformers("GPT2LMHeadModel"), _text(32, 1024), "ddp"),
    "T5-base, DDP": Step(
        _transformers(
            "T5ForConditionalGeneration",
            d_model=768,
            d_ff=3072,
            num_layers=12,
            decoder_start_token_id=0,
        ),
        _text(32, 512),
        "ddp",
    ),
    "Llama-8B, FSDP": Step(
        _transformers(
            "LlamaForCausalLM",
            **_SEVEN,
            intermediate_size=14336,
            num_key_value_heads=8,
            vocab_size=128256,
        ),
        _text(4, 2048),
        "fsdp",
    ),
    "Mistral-7B, FSDP": Step(_transformers("MistralForCausalLM"), _text(4, 2048), "fsdp"),
    "Qwen2-7B, FSDP": Step(
        _transformers("Qwen2ForCausalLM", **_SEVEN, intermediate_size=11008), _text(4, 2048), "fsdp"
    ),
    "GPT-2 XL, FSDP": Step(
        _transformers("GPT2LMHeadModel", n_embd=1600, n_layer=48, n_head=25),
        _text(4, 1024),
        "fsdp",
    ),
    "MLP, FSDP": Step(_mlp, lambda: {"x": torch.ones(4096, 8192, dtype=torch.bfloat16)}, "fsdp"),
}
INFERENCE = {
    "MLP, tensor parallel": Step(
        _feed_forward, lambda: {"input": torch.ones(4096, 8192, dtype=torch.bfloat16)}, "tp"
    ),
    **{
        name.replace("DDP", "replicas"): step
        for name, step in STEPS.items()
        if step.parallel == "ddp"
    },
    **{
        f"{name}, tensor parallel": replace(
            STEPS[f"{name}, FSDP"], inputs=_text(4, 2048, input_ids=(4, 2048)), parallel="tp"
        )
        for name in _TENSOR_PARALLEL
    },
}


def compared(name: str, cards: int, mode: str = "eager", *, training: bool = True) -> Times:
    """Return the time of a step from a dry run and from an estimate."""
    import hpu_magic
    import hpu_magic.simulator
    from hpu_magic.dry_runs.run import Request, dry_run

    # Without the simulator, the estimate would trace CPU operators, some of which are several
    # operators on a card.
    hpu_magic.simulator.activate(announce=False)
    step = (STEPS if training else INFERENCE)[name]
    flags = {
        "PT_HPU_LAZY_MODE": str(int(mode in ("lazy", "graphs"))),
        "PT_HPU_ENABLE_LAZY_COLLECTIVES": str(mode == "graphs").lower(),
    }
    with mock.patch.dict(os.environ, flags), tempfile.NamedTemporaryFile() as file:
        place = [] if training else [file.name]
        request = Request(__file__, [name, mode, *place], cards=cards)
        result = dry_run(request, output=subprocess.DEVNULL)
        if result.status or result.time is None:
            raise RuntimeError(f"{name} failed in the dry run: {result.error}")
        seconds = result.time.seconds if training else float(file.read())
    with torch.device("meta"):
        model, inputs = step.build(), step.inputs()
    parallel = f"tp={cards}" if step.parallel == "tp" else step.parallel
    estimate = hpu_magic.estimate(
        model, inputs, cards=cards, parallel=parallel, mode=mode, train=training
    )
    # The capture of a graph also runs its collectives.
    runs = 1 if training else _RUNS + (mode == "graphs")
    sent = sum(result.time.sent.values()) / runs
    return Times(seconds, estimate.seconds, round(sent))


def train(step: Step, mode: str) -> None:
    """Train on one or several cards."""
    from habana_frameworks.torch.core import mark_step

    with torch.device("hpu"):
        model, inputs = step.build(), step.inputs()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        torch.distributed.init_process_group("hccl")
        model = _shared(model, step.parallel)
    optimizer = torch.optim.AdamW(model.parameters())

    def loss() -> torch.Tensor:
        output = model(**inputs)
        found = output if isinstance(output, torch.Tensor) else output.get("loss", output[0])
        total: torch.Tensor = found.sum()
        return total

    forward = _compiled(loss) if mode == "compile" else loss

    def propagate() -> None:
        forward().backward()
        mark_step()

    run = propagate
    if mode == "graphs":
        for _ in range(2):  # afterwards, DDP does not change its buckets
            propagate()
            model.zero_grad()
        run = _captured(propagate)
    update = _compiled(optimizer.step) if mode == "compile" else optimizer.step
    for _ in range(4):
        run()
        update()
        if mode != "graphs":  # replays write to the same gradients
            optimizer.zero_grad()
        mark_step()


def infer(step: Step, place: str, mode: str) -> None:
    """Run the model on one or several cards, and write the seconds of the last run to a file."""
    from habana_frameworks.torch.core import mark_step

    from hpu_magic.simulator import card_time

    with torch.device("hpu"):
        model, inputs = step.build().eval(), step.inputs()
    if step.parallel == "tp":
        torch.distributed.init_process_group("hccl")
        _make_tensor_parallel(model)
    called = _compiled(model) if mode == "compile" else model

    @torch.no_grad()
    def run() -> None:
        called(**inputs)
        mark_step()

    if mode == "graphs":
        run = _captured(run)
    hpu: Any = torch.get_device_module("hpu")
    seconds = 0.0
    for _ in range(_RUNS):
        hpu.synchronize()
        before = card_time.read()
        run()
        hpu.synchronize()
        seconds = card_time.read().card - before.card
    Path(place).write_text(f"{seconds}")


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="hpu_backend")


def _captured(function: Callable[[], None]) -> Callable[[], None]:
    from habana_frameworks.torch.hpu import HPUGraph, graph

    captured = HPUGraph()
    with graph(captured):
        function()
    return captured.replay


def _shared(model: nn.Module, parallel: str) -> nn.Module:
    if parallel == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    lists = [each for each in model.modules() if isinstance(each, nn.ModuleList)]
    for layer in (layer for each in lists for layer in each):
        fully_shard(layer)
    fully_shard(model)
    return model


def _make_tensor_parallel(model: nn.Module) -> None:
    """Keep this rank's shard of each linear layer, and add the partial sums of all ranks."""
    ranks = torch.distributed.get_world_size()
    for name, layer in model.named_modules():
        if not isinstance(layer, nn.Linear):
            continue
        by_rows = name.endswith(("o_proj", "down_proj"))
        shard = layer.weight.chunk(ranks, dim=int(by_rows))[0]
        layer.weight = nn.Parameter(shard.clone(), requires_grad=False)
        if by_rows:
            layer.register_forward_hook(_add_partial_sums)
        elif layer.bias is not None:
            layer.bias = nn.Parameter(layer.bias.chunk(ranks)[0].clone(), requires_grad=False)


def _add_partial_sums(layer: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
    torch.distributed.all_reduce(output)
    return output


def table() -> PageTable:
    """Return the table on the page."""
    runs = [_run(mode, CARDS, training) for training in (True, False) for mode in MODES]
    return PageTable(PAGE, ("models", *COLUMNS), runs)


def _run(mode: str, cards: int, training: bool) -> str:
    kind = "training" if training else "inference"
    return f"{kind}, {mode}, {cards} card{'s' if cards > 1 else ''}"


def names_of(cards: int, mode: str = "eager", *, training: bool = True) -> list[str]:
    """Return the steps that fit on these cards and can run in this mode."""
    steps = STEPS if training else INFERENCE
    if mode == "graphs":  # host reads, and FSDP's changes of memory, cannot be captured
        steps = {
            name: step
            for name, step in steps.items()
            if step.parallel != "fsdp" and not name.startswith((*_HOST_READS, *_TOO_LARGE))
        }
    return [name for name, step in steps.items() if cards > 1 or step.parallel == "ddp"]


def main() -> int:
    """Compare the steps on the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", default="eager", choices=MODES)
    parser.add_argument("--cards", type=int, default=CARDS, help="number of cards")
    parser.add_argument("--inference", action="store_true", help="run models without training")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS | INFERENCE))
    options = parser.parse_args()
    mode, cards, training = options.mode, options.cards, not options.inference
    differences = {}
    for name in options.steps or names_of(cards, mode, training=training):
        times = compared(name, cards, mode, training=training)
        differences[name] = times.difference
        print(
            f"{name:32} dry run {times.dry_run:8.4f} s   estimate {times.estimate:8.4f} s   "
            f"{times.difference:+.1%}   sends {times.sent / 1e9:.2f} GB",
            flush=True,
        )
    if not options.steps and cards == CARDS:
        table().update((_run(mode, cards, training), *row(differences)))
    known = DIFFERENT if mode == "compile" else {}
    return int(any(abs(each) > LARGEST for name, each in differences.items() if name not in known))


if __name__ == "__main__":
    if "HPU_MAGIC_DRY_RUN" in os.environ:
        name, mode, *place = sys.argv[1:]
        if place:
            infer(INFERENCE[name], place[0], mode)
        else:
            train(STEPS[name], mode)
    else:
        sys.exit(main())
