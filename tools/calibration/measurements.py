"""Published measurements, and their workloads for the cost model."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

from calibration import models
from calibration.layers import DEEPER, SHALLOW, alike_added, deep
from hpu_magic.estimates.cost.bands import band_of_inference, band_of_training
from hpu_magic.estimates.cost.constants import Constants
from hpu_magic.estimates.cost.hardware import generation_named
from hpu_magic.estimates.cost.pricing import Workload, add_up, seconds_of, workload_of
from hpu_magic.estimates.cost.products import Product
from hpu_magic.estimates.cost.quantities import Operations, Products, array_seconds
from hpu_magic.estimates.generation.passes import passes_of, preallocated, with_cache_in
from hpu_magic.estimates.generation.protocol import protocol_of
from hpu_magic.estimates.layout import Buckets, Layout, parse
from hpu_magic.estimates.tracing.optimizers import maker
from hpu_magic.estimates.tracing.program import Operation, Program
from hpu_magic.estimates.tracing.step import StepOptions, trace_step

_BUCKET = 128  # graphs read the KV cache in multiples of this length
BUCKETS = Buckets(first=100 * 2**20, others=100 * 2**20, views=True)
"""Buckets of the measured jobs: those of ``bucket_cap_mb=100, gradient_as_bucket_view=True``."""
_HERE = Path(__file__).parent
TRAINING, BATCHED, SINGLE = "training", "batched generation", "batch-1 generation"
PRODUCTS = "matrix products"
KINDS = (TRAINING, BATCHED, SINGLE, PRODUCTS)


@dataclass(frozen=True)
class Measurement:
    """A published figure: samples, tokens or seconds, depending on `unit`."""

    row: dict[str, str]
    kind: str

    @property
    def family(self) -> str:
        """Family of the model."""
        return models.FAMILIES.get(self.row["model"], self.kind)

    @property
    def scored(self) -> bool:
        """Whether the card was probably the bottleneck of the measurement."""
        return self.row["trust"] in ("h", "m")

    @property
    def value(self) -> float:
        """The figure."""
        return float(self.row["value"])

    @property
    def layout(self) -> Layout:
        """How the job is distributed among the cards."""
        parallel = self.row["parallel"]
        found = parse(int(self.row["cards"]), None if parallel == "-" else parallel)
        return replace(found, buckets=BUCKETS)

    @property
    def band(self) -> float | None:
        """Factor of the band that an estimate of the job has; None for matrix products."""
        row = self.row
        if self.kind == PRODUCTS:
            return None
        if self.kind == TRAINING:
            return band_of_training(self.layout, row["mode"], row["dtype"]).high
        card = generation_named(row["generation"])
        sequences, new = int(row["batch"]), int(row["new"])
        return band_of_inference(sequences, new, self.layout, card, row["dtype"]).high

    @property
    def job(self) -> str:
        """Description of the job."""
        row = self.row
        if self.kind == PRODUCTS:
            return f"{row['generation']}, {row['dtype']}, {row['size']} x {row['size']}"
        parts = [f"{row['cards']} x {row['generation']}", row["dtype"], row["mode"]]
        parts += [row["parallel"]] * (row["parallel"] != "-")
        if self.kind == TRAINING:
            parts.append(f"batch {row['batch']} of {row['tokens']}")
            parts += [f"accumulate {row['accumulate']}"] * (row["accumulate"] != "1")
            parts += [f"{row['recomputed']} recomputation"] * (row["recomputed"] != "none")
            parts += [row["trained"]] * (row["trained"] != "full")
            parts += ["fused attention"] * (row["attention"] == "fused")
        else:
            parts.append(f"batch {row['batch']}, {row['prompt']} + {row['new']} tokens")
            parts += ["cache concatenated per token"] * (row["cache"] == "joined")
        return ", ".join(parts)


@dataclass(frozen=True)
class Job:
    """A measurement, its workloads, and the number of times that each of them runs."""

    measurement: Measurement
    steps: tuple[tuple[Workload, float], ...]
    amount: float
    """Amount of work in the measurement's unit; 0 if the unit is seconds."""

    def estimate(self, constants: Constants) -> float:
        """Return the estimated figure."""
        seconds = sum(
            times * add_up(step, seconds_of(step, constants), constants).seconds
            for step, times in self.steps
        )
        return self.amount / seconds if self.amount else seconds


def measurements() -> Iterator[Measurement]:
    """Yield all published measurements."""
    for row in rows_of("training.tsv"):
        yield Measurement(row, TRAINING)
    for row in rows_of("products.tsv"):
        yield Measurement(row, PRODUCTS)
    for row in rows_of("generation.tsv"):
        yield Measurement(row, SINGLE if row["batch"] == "1" else BATCHED)


def rows_of(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a table as dicts."""
    with (_HERE / name).open(newline="") as file:
        yield from csv.DictReader(file, delimiter="\t")


def job_of(measurement: Measurement) -> Job:
    """Return the job that was measured."""
    if measurement.kind == PRODUCTS:
        return _product(measurement)
    return _training(measurement) if measurement.kind == TRAINING else _generation(measurement)


def _product(item: Measurement) -> Job:
    """Return the job for a square matmul whose operands already have the dtype and need no cast."""
    size, dtype = int(item.row["size"]), item.row["dtype"]
    card = generation_named(item.row["generation"])
    product = Product(1, size, size, size)
    nothing = np.zeros(1)
    operations = Operations(
        **{
            each.name: np.ones(1) if each.name in ("operators", "kernels") else nothing
            for each in fields(Operations)
            if each.name != "arrays"
        },
        arrays=np.array([array_seconds(product, card, dtype)]),
    )
    edge, area = np.array([float(size)]), np.array([float(size * size)])
    width = 1 if dtype == "fp8" else 2
    products = Products(np.zeros(1, np.int64), edge, edge, area * width, area * width, area * 2)
    step = Workload(card, parse(), "graphs", 1, operations, products, 0, 0, 0)
    return Job(item, ((step, 1.0),), product.flops / 1e12)


def _training(each: Measurement) -> Job:
    row = each.row
    layout = each.layout
    batch, accumulate = int(row["batch"]), int(row["accumulate"])

    def step(layers: int | None) -> Workload:
        program = _training_program(
            row["model"],
            layers,
            batch,
            int(row["tokens"]),
            row["dtype"],
            row["recomputed"],
            row["trained"],
            row["attention"],
            row["mode"] == "compile",
        )
        return workload_of(
            program,
            row["generation"],
            mode=row["mode"],
            dtype=row["dtype"],
            layout=layout,
            accumulate=accumulate,
            # The vendor's operator replaced PyTorch's.
            fused_attention=row["attention"] == "fused",
        )

    samples = batch * layout.data * accumulate
    amount = samples * (int(row["tokens"]) if row["unit"] == "tokens/s" else 1)
    # Collectives divide graphs, but DDP's buckets do not align with layers.
    divided = row["mode"] in ("lazy", "compile") and layout.data > 1 and layout.zero in (0, 3)
    workload = alike_added(step(None)) if divided else _of_all_layers(row["model"], step)
    return Job(each, ((workload, 1.0),), amount)


def _of_all_layers(model: str, step: Callable[[int | None], Workload]) -> Workload:
    layers = models.LAYERS.get(model)
    return deep(step(SHALLOW), step(DEEPER), layers) if layers else alike_added(step(None))


@cache
def _training_program(
    name: str,
    layers: int | None,
    batch: int,
    tokens: int,
    dtype: str,
    recomputed: str,
    trained: str,
    attention: str,
    compiled: bool,
) -> Program:
    own = "sdpa" if attention == "fused" else attention
    model = models.built(name, layers, own)
    if trained != "full":
        models.train_adapters(model, trained)
    mixed = dtype == "bf16-mixed"
    return trace_step(
        model,
        (),
        models.inputs(name, batch, tokens),
        StepOptions(
            dtype=None if mixed else torch.bfloat16,
            autocast=torch.bfloat16 if mixed else None,
            optimizer=maker("sgd" if name == "resnet-50" else "fusedadamw"),
            checkpointing=recomputed,
            compiled=compiled,
        ),
    )


def _generation(each: Measurement) -> Job:
    row = each.row
    layout = each.layout
    batch, prompt, new = (int(row[name]) for name in ("batch", "prompt", "new"))
    # The vendor's FP8 scripts use its attention operator and pass a mask to it.
    fused = row["dtype"] == "fp8"

    def step(place: int) -> Callable[[int | None], Workload]:
        def made(layers: int | None) -> Workload:
            program = _generation_programs(
                row["model"], layers, batch, prompt, new, row["cache_dtype"], row["cache"]
            )[place]
            return workload_of(
                with_mask(program) if fused else program,
                row["generation"],
                mode=row["mode"],
                dtype=row["dtype"],
                layout=layout,
                fused_attention=fused,
            )

        return made

    steps = [(_of_all_layers(row["model"], step(0)), 1.0)]
    if new > 1:
        steps.append((_of_all_layers(row["model"], step(1)), float(new - 1)))
    return Job(each, tuple(steps), 0.0 if row["unit"] == "seconds" else float(batch * new))


def with_mask(program: Program) -> Program:
    """Return the program without the causal-attention flag, because the mask is a tensor."""

    def changed(operation: Operation) -> Operation:
        names = [argument.name for argument in operation.operator._schema.arguments]
        arguments = [
            False if name == "is_causal" else value
            for name, value in zip(names, operation.arguments, strict=False)
        ]
        return replace(operation, arguments=tuple(arguments))

    return replace(program, operations=[changed(each) for each in program.operations])


@cache
def _generation_programs(
    name: str, layers: int | None, batch: int, prompt: int, new: int, kv: str, cache: str
) -> tuple[Program, ...]:
    """Return the programs for the prompt and the middle token; graphs read full cache buckets."""
    model = models.built(name, layers).eval()
    with passes_of(model, protocol_of(model), torch.bfloat16) as passes:
        found = [passes.prompt(batch, prompt)]
        if new > 1:
            found.append(passes.token(batch, prompt + new // 2 + _BUCKET // 2))
    if cache == "kept":
        found = [preallocated(each) for each in found]
    if kv == "fp8":
        found = [with_cache_in(each, torch.float8_e4m3fn) for each in found]
    return tuple(each.program for each in found)
