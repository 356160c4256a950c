"""Functions for ranks: training with DeepSpeed's ZeRO stages and with DDP."""

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3] / "tools"))

import torch
from deepspeed_table import memory
from deepspeed_table.features import buckets, zero
from deepspeed_table.training import distributed_data_parallel, train


def losses() -> dict[str, list[float]]:
    """Return this rank's losses of 20 steps with DDP and with each ZeRO stage."""
    here = Path()
    found = {f"ZeRO {stage}": train(here, zero(stage)) for stage in range(4)}
    return {"DDP": distributed_data_parallel(here, {}), **found}


def peak_and_estimate(settings: dict[str, Any]) -> tuple[int, int]:
    """Return the measured and the estimated peak memory of a step in bytes."""
    return memory.peak_and_estimate(memory.settings_of(settings), memory.Wide(), memory.inputs())


def peak_and_estimate_of_groups(checkpointed: bool) -> tuple[int, int]:
    """Return these figures for a Llama and an optimizer with two parameter groups."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 256, "intermediate_size": 512, "vocab_size": 2000}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 4}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, use_cache=False))
    if checkpointed:
        model.gradient_checkpointing_enable()
    matrices, vectors = (
        [each for each in model.parameters() if (each.dim() == 1) is flat] for flat in (False, True)
    )
    settings = memory.settings_of(buckets(2))
    del settings["optimizer"]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    tokens = torch.zeros(4, 128, dtype=torch.int64)
    batch = {"input_ids": tokens, "labels": tokens}
    return memory.peak_and_estimate(settings, model, batch, torch.optim.AdamW(groups, lr=1e-3))
