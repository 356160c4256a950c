"""Features that distribute a model: pipelines, sequences, experts, tensors and compression."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch import nn

from deepspeed_table.training import (
    CLASSES,
    STEPS,
    WIDTH,
    Blocks,
    batches,
    config,
    engine_for,
    losses_of,
)


def pipeline(folder: Path, settings: dict[str, Any], stages: int = 2) -> list[float]:
    """Train a pipeline module with four batches per step."""
    from deepspeed.pipe import LayerSpec, PipelineModule

    torch.manual_seed(0)
    deepspeed.init_distributed()
    inner = [(LayerSpec(nn.Linear, WIDTH, WIDTH), LayerSpec(nn.GELU)) for _ in range(4)]
    layers = [*itertools.chain(*inner), LayerSpec(nn.Linear, WIDTH, CLASSES)]
    module = PipelineModule(
        layers=layers,
        num_stages=stages,
        loss_fn=nn.functional.cross_entropy,
        partition_method="uniform",
        activation_checkpoint_interval=1,
    )
    engine = engine_for(module, config(**settings, gradient_accumulation_steps=4))
    source = batches(engine.grid.get_data_parallel_rank())
    return [float(engine.train_batch(data_iter=source)) for _ in range(STEPS)]


class SequenceAttention(nn.Module):
    """A sequence classifier; in attention, ranks exchange positions for heads."""

    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        from deepspeed.sequence.layer import DistributedAttention

        self.heads = heads
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)
        self.attention = DistributedAttention(
            _attend, dist.group.WORLD, scatter_idx=2, gather_idx=1
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, positions, classes) for a slice of the positions."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        return self.head(x + self.attention(q, k, v, 0).flatten(2))


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def ulysses(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Train on sequences that are split across ranks (Ulysses sequence parallelism)."""
    torch.manual_seed(0)
    deepspeed.init_distributed()
    engine = engine_for(SequenceAttention(), config(**settings))
    found = []
    generator = torch.Generator().manual_seed(7)
    ranks, rank = dist.get_world_size(), dist.get_rank()
    for _ in range(STEPS):
        x = torch.randn(2, 16, WIDTH, generator=generator).chunk(ranks, 1)[rank]
        y = torch.randint(0, CLASSES, (2, 16), generator=generator).chunk(ranks, 1)[rank]
        logits = engine(x.to(engine.device))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten().to(engine.device))
        engine.backward(loss)
        engine.step()
        found.append(loss.item())
    return found


class Experts(nn.Module):
    """A classifier with one mixture-of-experts layer."""

    def __init__(self, parallel: int, k: int) -> None:
        super().__init__()
        from deepspeed.moe.layer import MoE

        self.body = nn.Linear(WIDTH, WIDTH)
        expert = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        # Avoid random choices, which differ between devices.
        self.experts = MoE(
            WIDTH,
            expert,
            num_experts=4,
            ep_size=parallel,
            k=k,
            use_rts=False,
            top2_2nd_expert_sampling=False,
        )
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (batch, classes)."""
        x = torch.relu(self.body(x))
        mixed, *_ = self.experts(x)
        return self.head(x + mixed)


def experts(folder: Path, settings: dict[str, Any], k: int = 1) -> list[float]:
    """Train four experts on two ranks per group."""
    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as split

    torch.manual_seed(0)
    deepspeed.init_distributed()
    model = Experts(parallel=2, k=k)
    groups = split({"params": list(model.parameters()), "name": "all"})
    return losses_of(engine_for(model, config(**settings), groups))


def quantize(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Quantize to fp8 and back with the accelerator's operator; return the error and the values."""
    builder = get_accelerator().create_op_builder("FPQuantizerBuilder")
    operator = builder.load()
    torch.manual_seed(0)
    x = torch.randn(16, 512).to(get_accelerator().device_name(), torch.bfloat16)
    there = torch.empty(x.shape, dtype=builder.get_default_quant_dtype(), device=x.device)
    scale = torch.empty(16, 1, device=x.device)
    operator.quantize(there, x, scale, 512, False, 8, 3)
    back = operator.dequantize(torch.empty_like(x), there, scale, 512, 3, 4)
    return _close(back.float(), x.float(), 2**-4)


def quantize_by_class(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Quantize to fp8 and back with ``FP_Quantize``."""
    from deepspeed.linear import QuantizationConfig
    from deepspeed.ops.fp_quantizer import FP_Quantize

    torch.manual_seed(0)
    x = torch.randn(16, 512).to(get_accelerator().device_name(), torch.bfloat16)
    quantizer = FP_Quantize(QuantizationConfig(group_size=512))
    back = quantizer.dequantize(quantizer.quantize(x))
    return _close(back.float(), x.float(), 2**-4)


def _close(back: torch.Tensor, x: torch.Tensor, allowed: float) -> list[float]:
    error = ((back - x).abs().max() / x.abs().max()).item()
    if not 0 < error <= allowed:
        raise AssertionError(f"The relative error of the values is {error}.")
    return [error, *back.flatten()[:64].tolist()]


def tensor_parallel(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Train with automatic tensor parallelism (``tensor_parallel.autotp_size``)."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SMALL))
    engine = engine_for(model, config(**settings, tensor_parallel={"autotp_size": 2}))
    generator = torch.Generator().manual_seed(7)
    found = []
    for _ in range(STEPS):
        tokens = torch.randint(0, SMALL["vocab_size"], (2, 16), generator=generator)
        tokens = tokens.to(engine.device)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        found.append(loss.item())
    return found


SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}


def inference(
    folder: Path, settings: dict[str, Any], gpt2: bool = False, **options: Any
) -> list[float]:
    """Return greedily generated tokens and logits of a ``deepspeed.init_inference`` engine."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    deepspeed.init_distributed()
    if gpt2:
        model = GPT2LMHeadModel(GPT2Config(128, 64, n_embd=64, n_layer=2, n_head=4)).eval()
    else:
        model = LlamaForCausalLM(LlamaConfig(**SMALL)).eval()
    engine = deepspeed.init_inference(
        model, tensor_parallel={"tp_size": dist.get_world_size()}, dtype=torch.float32, **options
    )
    tokens = torch.arange(8)[None].to(get_accelerator().current_device_name())
    written = engine.generate(tokens, max_new_tokens=12, do_sample=False)
    logits = engine(tokens).logits[0, -1]
    if dist.get_rank():
        return []
    return [*map(float, written[0].tolist()), *(logits.float() + 10).tolist()]


def compressed(folder: Path, settings: dict[str, Any], optimizer: str) -> list[float]:
    """Train with an optimizer that compresses its communication to one bit after five steps."""
    torch.manual_seed(0)
    parameters = {
        "lr": 1e-3,
        "freeze_step": 5,
        "cuda_aware": False,
        "comm_backend_name": get_accelerator().communication_backend_name(),
    }
    chosen = {"type": optimizer, "params": parameters}
    return losses_of(engine_for(Blocks(), {**config(**settings), "optimizer": chosen}))


def quantize_integers(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Quantize to eight bits and back with ZeRO++'s operator."""
    from deepspeed.runtime.zero.partition_parameters import CUDAQuantizer

    torch.manual_seed(0)
    x = torch.randn(16, 512).to(get_accelerator().device_name())
    quantizer = CUDAQuantizer()
    there, scale = quantizer.quantize(x)
    return _close(quantizer.dequantize(there, scale).float().view_as(x), x, 2**-6)
