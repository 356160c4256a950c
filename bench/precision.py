"""Benchmark fused operators and autocast against the CPU, and FP8 against bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from habana_frameworks.torch.hpex.experimental import transformer_engine
from habana_frameworks.torch.hpex.kernels import FusedSDPA
from habana_frameworks.torch.hpex.normalization import FusedRMSNorm
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

from bench.harness import Figure, in_turn, quiet_ratio
from bench.training import TRANSFORMER_BATCH, transformer_layer

SHAPES = ((512, 784), (512,), (512, 512), (512,)) * 8
ATTENTION = (4, 8, 256, 64)
ROWS = (4096, 1024)
LINEAR = (512, 1024, 1024)  # rows, input features, output features


def optimizer_step(device: str) -> Callable[[], object]:
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape).to(device)) for shape in SHAPES]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    if device == "hpu":
        return FusedAdamW(parameters, lr=1e-3).step
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True).step


def attention(device: str) -> Callable[[], object]:
    torch.manual_seed(0)
    query, key, value = (torch.randn(ATTENTION).to(device).requires_grad_() for _ in range(3))

    def step() -> float:
        if device == "hpu":
            result = FusedSDPA.apply(query, key, value, None, 0.0, True)
        else:
            result = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        gradients = torch.autograd.grad(result.sum(), (query, key, value))
        return gradients[0][0, 0, 0, 0].item()

    return step


def normalization(device: str) -> Callable[[], object]:
    torch.manual_seed(0)
    x = torch.randn(ROWS).to(device).requires_grad_()
    weight = torch.randn(ROWS[1:]).to(device).requires_grad_()

    def step() -> float:
        if device == "hpu":
            result = FusedRMSNorm.apply(x, weight, 1e-6)
        else:
            result = nn.functional.rms_norm(x, ROWS[1:], weight, 1e-6)
        gradients = torch.autograd.grad(result.sum(), (x, weight))
        return gradients[1][0].item()

    return step


def autocast_cell(device: str) -> Callable[[], object]:
    torch.manual_seed(0)
    model = transformer_layer().to(device)
    batch = torch.randn(TRANSFORMER_BATCH).to(device)

    def cell() -> float:
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(batch).float().square().mean()
        loss.backward()
        return loss.item()

    return cell


def linear_layer(in_8_bits: bool) -> Callable[[], object]:
    torch.manual_seed(0)
    rows, before, after = LINEAR
    layer = transformer_engine.Linear(before, after, params_dtype=torch.bfloat16)
    x = torch.randn(rows, before).bfloat16().to("hpu").requires_grad_()
    of_result = torch.randn(rows, after).bfloat16().to("hpu")

    def step() -> None:
        with transformer_engine.fp8_autocast(in_8_bits):
            result = layer(x)
        torch.autograd.grad(result, (x, *layer.parameters()), of_result)

    return step


def figures() -> Iterator[Figure]:
    for name, step, target, rounds in (
        ("FusedAdamW / AdamW(fused=True) on the CPU", optimizer_step, 1.1, 100),
        ("FusedSDPA / scaled_dot_product_attention on the CPU", attention, 1.1, 60),
        ("FusedRMSNorm / rms_norm on the CPU", normalization, 1.1, 60),
        ("bfloat16 autocast cell: hpu / cpu", autocast_cell, 1.05, 60),
    ):
        pairs = in_turn(step("cpu"), step("hpu"), rounds)
        yield Figure(name, quiet_ratio(pairs), "ratio", target)
    value = quiet_ratio(in_turn(linear_layer(False), linear_layer(True), 60))
    yield Figure("te.Linear, forward and backward: fp8 / bfloat16", value, "ratio", 3)
