"""Quantized checkpoints. Each function also writes the dequantized weights back to the model."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from serving_table.plugin_rules import Fp8Linear, requantized

GROUP = 64
MERGED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
FP4 = torch.cat([FP4, -FP4])


def _linears(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Linear]]:
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
            yield name, module


def _write(
    model: Any, folder: Path, weights: dict[str, torch.Tensor], settings: dict[str, Any]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    others = {
        name: value.bfloat16()
        for name, value in model.state_dict().items()
        if name not in weights and not any(other.startswith(name[:-6]) for other in weights)
    }
    made = {name: value.detach().contiguous().clone() for name, value in (others | weights).items()}
    save_file(made, folder / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict() | {"quantization_config": settings, "dtype": "bfloat16"}
    config["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(config, default=str))


def _packed(values: torch.Tensor, dim: int, order: tuple[int, ...]) -> torch.Tensor:
    parts = values.long().unflatten(dim, (-1, 8)).movedim(dim + 1, 0)
    words = sum(parts[source] << 4 * place for place, source in enumerate(order))
    return torch.as_tensor(words).to(torch.int32)


def _four_bits(linear: torch.nn.Linear) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return values, zero points and scales as [in, out] or [groups, out], and round the weight."""
    weight = linear.weight.data.t()
    groups = weight.unflatten(0, (-1, GROUP))
    low, high = groups.amin(1), groups.amax(1)
    scale = ((high - low) / 15).bfloat16().half().float()
    zero = (-low / scale).round().clamp(1, 15)
    wide_scale, wide_zero = (each.repeat_interleave(GROUP, 0) for each in (scale, zero))
    values = (weight / wide_scale + wide_zero).round().clamp(0, 15)
    linear.weight.data = ((values - wide_zero) * wide_scale).t().bfloat16().float().contiguous()
    return values, zero, scale


def awq(model: torch.nn.Module, folder: Path) -> None:
    """Write 4-bit weights in AWQ's order."""
    weights = {}
    for name, linear in _linears(model):
        values, zero, scale = _four_bits(linear)
        weights[f"{name}.qweight"] = _packed(values, 1, AWQ_ORDER)
        weights[f"{name}.qzeros"] = _packed(zero, 1, AWQ_ORDER)
        weights[f"{name}.scales"] = scale.half()
    settings = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True}
    _write(model, folder, weights, {**settings, "version": "gemm"})


def gptq(model: torch.nn.Module, folder: Path) -> None:
    """Write 4-bit weights in GPTQ's format, whose stored zero points are smaller by one."""
    weights = {}
    plain = tuple(range(8))
    for name, linear in _linears(model):
        values, zero, scale = _four_bits(linear)
        weights[f"{name}.qweight"] = _packed(values, 0, plain)
        weights[f"{name}.qzeros"] = _packed(zero - 1, 1, plain)
        weights[f"{name}.scales"] = scale.half()
        weights[f"{name}.g_idx"] = torch.arange(values.shape[0], dtype=torch.int32) // GROUP
    settings = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False}
    _write(model, folder, weights, {**settings, "sym": False, "lm_head": False})


def fp8_static(model: torch.nn.Module, folder: Path) -> torch.nn.Module:
    """Write FP8 weights with one scale per tensor, and static scales of activations.

    The scale limits activations to 1.92, which changes the tokens of many prompts. The function
    replaces the model's layers with layers that follow the plugin's rules, and returns a copy with
    the original layers.
    """
    input_scale = torch.tensor([0.004])
    stored, scales = _fp8(model, folder, input_scale)
    definition = copy.deepcopy(model)
    for names in _merged(stored):
        made, common = requantized([stored[n] for n in names], [scales[n] for n in names])
        for name, weight in zip(names, made, strict=True):
            model.set_submodule(name, Fp8Linear(weight, common, input_scale * 2))
    return definition


def fp8_dynamic(model: torch.nn.Module, folder: Path) -> None:
    """Write FP8 weights with one scale per tensor; activations have one scale per token."""
    _fp8(model, folder, None)


def _fp8(
    model: torch.nn.Module, folder: Path, input_scale: torch.Tensor | None
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Write weights, and return them and their scales by layer name."""
    weights, stored, scales = {}, {}, {}
    for name, linear in _linears(model):
        scales[name] = linear.weight.data.abs().max() / 448
        stored[name] = (linear.weight.data / scales[name]).to(torch.float8_e4m3fn)
        linear.weight.data = (stored[name].float() * scales[name]).contiguous()
        weights[f"{name}.weight"] = stored[name]
        weights[f"{name}.weight_scale"] = scales[name].reshape(1)
        if input_scale is not None:
            weights[f"{name}.input_scale"] = input_scale
    scheme = "dynamic" if input_scale is None else "static"
    _write(model, folder, weights, {"quant_method": "fp8", "activation_scheme": scheme})
    return stored, scales


def _merged(names: Iterable[str]) -> list[list[str]]:
    """Return lists of layers that vLLM merges into one."""
    lists: dict[str, list[str]] = {}
    for name in names:
        parent, _, own = name.rpartition(".")
        common = next((each for each in MERGED if own in each), own)
        lists.setdefault(f"{parent}.{common}", []).append(name)
    return list(lists.values())


def mxfp4(model: torch.nn.Module, folder: Path) -> None:
    """Write the experts of a GPT-OSS model as MXFP4."""
    weights = {}
    made = torch.Generator().manual_seed(2)
    for name, module in model.named_modules():
        if not name.endswith("mlp.experts"):
            continue
        for part in ("gate_up_proj", "down_proj"):
            target = getattr(module, part)
            experts, inner, outer = target.shape
            codes = torch.randint(0, 16, (experts, outer, inner), generator=made)
            scales = torch.randint(121, 124, (experts, outer, inner // 32), generator=made)
            factors = torch.exp2(scales - 127.0).repeat_interleave(32, -1)
            target.data = (FP4[codes] * factors).transpose(1, 2).contiguous()
            stored = (codes[..., ::2] | codes[..., 1::2] << 4).byte()
            weights[f"{name}.{part}_blocks"] = stored.unflatten(-1, (-1, 16))
            weights[f"{name}.{part}_scales"] = scales.byte()
    _write_experts(model, folder, weights)


def _write_experts(model: Any, folder: Path, weights: dict[str, torch.Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    replaced = {name.rsplit("_", 1)[0] for name in weights}
    others = {k: v.bfloat16() for k, v in model.state_dict().items() if k not in replaced}
    made = {name: value.detach().contiguous().clone() for name, value in (others | weights).items()}
    save_file(made, folder / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict() | {"dtype": "bfloat16", "architectures": [type(model).__name__]}
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": []}
    (folder / "config.json").write_text(json.dumps(config, default=str))
