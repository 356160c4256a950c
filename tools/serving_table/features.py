"""The rows of the table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Feature:
    """A row: a model, options of vLLM's `LLM` and what to check."""

    name: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    check: str = "tokens"
    error: str = ""  # the plugin's own error, for features that it does not support

    def all_options(self) -> dict[str, Any]:
        """Return the options, including those that all rows have in common."""
        return {**COMMON, **self.options}

    def arguments(self) -> str:
        """Return the options in the form of the command line, without those of all rows."""
        return " ".join(_argument(name, value) for name, value in self.options.items()) or "none"


def _argument(name: str, value: Any) -> str:
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return f"`{option}`" if value else f"`--no-{option[2:]}`"
    return f"`{option} {json.dumps(value) if isinstance(value, dict) else value}`"


COMMON: dict[str, Any] = {
    "enforce_eager": True,
    "max_model_len": 512,
    "max_num_seqs": 4,
    "gpu_memory_utilization": 0.01,
}
COMPILED: dict[str, Any] = {"enforce_eager": False}
NGRAMS: dict[str, Any] = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}

FEATURES = (
    Feature("dense", "dense"),
    Feature("dense, compiled", "dense", COMPILED),
    Feature("grouped-query attention", "grouped"),
    Feature("grouped-query attention, compiled", "grouped", COMPILED),
    Feature("sliding window in all layers", "window", check="first"),
    Feature("sliding window in some layers", "interleaved", check="first"),
    Feature("mixture of experts", "experts"),
    Feature("mixture of experts, compiled", "experts", COMPILED),
    Feature("GPT-OSS", "gpt_oss"),
    Feature("tensor parallel, 2 cards", "dense", {"tensor_parallel_size": 2}),
    Feature("tensor parallel, 2 cards, compiled", "dense", {"tensor_parallel_size": 2, **COMPILED}),
    Feature("tensor parallel, 4 cards", "dense", {"tensor_parallel_size": 4}),
    Feature("prefix caching", "long", {"enable_prefix_caching": True}, "prefix"),
    Feature(
        "chunked prefill", "long", {"enable_chunked_prefill": True, "max_num_batched_tokens": 128}
    ),
    Feature("LoRA", "dense", {"enable_lora": True, "max_lora_rank": 8}, "lora"),
    Feature("speculative decoding with n-grams", "dense", {"speculative_config": NGRAMS}),
    Feature("guided decoding", "dense", check="guided"),
    Feature("embeddings", "dense", {"runner": "pooling", "convert": "embed"}, "embeddings"),
    Feature("default memory utilization", "dense", {"gpu_memory_utilization": 0.92}),
    Feature("AWQ", "dense-awq", {"quantization": "awq_hpu"}),
    Feature("GPTQ", "dense-gptq", {"quantization": "gptq_hpu"}),
    Feature("FP8, static scales", "dense-fp8", check="first"),
    Feature(
        "FP8, dynamic scales",
        "dense",
        {"quantization": "fp8"},
        error="has no attribute 'dynamic_scaled_fp8_quant'",
    ),
    Feature("MXFP4 (GPT-OSS)", "gpt_oss-mxfp4"),
)
