"""The rows of the tables."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Feature:
    """A model, options of vLLM and what to check."""

    name: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    check: str = "tokens"
    rule: str = ""  # the part of the model's definition that the plugin changes
    error: str = ""  # the plugin's own error, for features that it does not support
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def process(self) -> tuple[str, int]:
        """The script and cards; features with the same script and cards share a process."""
        script = "served.py" if self.check in ("server", "terminal") else "row.py"
        return script, self.options.get("tensor_parallel_size", 1)

    def request(self) -> dict[str, Any]:
        """Return what the script needs."""
        return {"check": self.check, "options": self.all_options(), "rule": self.rule}

    def all_options(self) -> dict[str, Any]:
        """Return the options, including those that all rows have in common."""
        return {**COMMON, **self.options}

    def arguments(self) -> str:
        """Return variables and options as on a command line, without those that all rows share."""
        words = [f"{name}={value}" for name, value in self.variables.items()]
        for each in command_line(self.options):
            words += map(shlex.quote, each.split(" ", 1))
        return f"`{' '.join(words)}`" if words else ""


def command_line(options: dict[str, Any]) -> list[str]:
    """Return each option of vLLM's `LLM` as an option of ``vllm serve``."""
    return [_argument(name, value) for name, value in options.items()]


def _argument(name: str, value: Any) -> str:
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return option if value else f"--no-{option[2:]}"
    return f"{option} {json.dumps(value) if isinstance(value, dict) else value}"


COMMON: dict[str, Any] = {
    "enforce_eager": True,
    "max_model_len": 512,
    "max_num_seqs": 4,
    "gpu_memory_utilization": 0.01,
}
COMPILED: dict[str, Any] = {"enforce_eager": False}
TWO_CARDS: dict[str, Any] = {"tensor_parallel_size": 2}
CHUNKS = {"enable_chunked_prefill": True, "max_num_batched_tokens": 128}
NGRAMS: dict[str, Any] = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
# With several requests, the plugin's padding of drafts overwrites tokens in the KV cache.
SPECULATIVE = {"max_num_seqs": 1, "speculative_config": NGRAMS}
WARM = {"VLLM_SKIP_WARMUP": "false"}
NO_OPERATOR = "has no attribute 'dynamic_scaled_fp8_quant'"

FEATURES = (
    Feature("sliding window in all layers", "mistral_window", rule="window"),
    Feature("sliding window in some layers", "gemma3_window", rule="window"),
    Feature("tensor parallel, 4 cards", "llama", {"tensor_parallel_size": 4}),
    Feature("tensor parallel, 2 cards, compiled", "llama", {**TWO_CARDS, **COMPILED}),
    Feature("prefix caching", "llama_long", {"enable_prefix_caching": True}, "prefix"),
    Feature("chunked prefill", "llama_long", CHUNKS),
    Feature("LoRA", "llama", {"enable_lora": True, "max_lora_rank": 8}, "lora"),
    Feature("speculative decoding with n-grams", "llama", SPECULATIVE),
    Feature("guided decoding", "llama", check="guided"),
    Feature("embeddings", "llama", {"runner": "pooling", "convert": "embed"}, "embeddings"),
    Feature("most of the card", "llama", {"gpu_memory_utilization": 0.92}),
    Feature("AWQ", "llama-awq", {"quantization": "awq_hpu"}),
    Feature("GPTQ", "llama-gptq", {"quantization": "gptq_hpu"}),
    Feature("FP8 checkpoint with static scales", "llama-fp8_static", rule="FP8 activations"),
    Feature("FP8 checkpoint with dynamic scales", "llama-fp8_dynamic"),
    Feature("FP8, quantized when loading", "llama", {"quantization": "fp8"}, error=NO_OPERATOR),
    Feature("GPT-OSS with MXFP4 weights", "gpt_oss-mxfp4"),
    Feature("server", "llama", check="server"),
    Feature("server, compiled", "llama", COMPILED, "server"),
    Feature("server, compiled with warm-up", "llama", COMPILED, "server", variables=WARM),
    Feature("server, 2 cards", "llama", TWO_CARDS, "server"),
    Feature("server in a terminal", "llama", check="terminal"),
)

WAYS = {"eager": {}, "compiled": COMPILED, "2 cards": TWO_CARDS}
"""Columns of the second table: how vLLM runs each model."""

MODELS = {
    "Llama": "llama",
    "Qwen2": "qwen2",
    "Qwen3": "qwen3",
    "Mistral": "mistral",
    "Phi-3": "phi3",
    "Granite": "granite",
    "Gemma 3": "gemma3",
    "StarCoder2": "starcoder2",
    "GPT-2": "gpt2",
    "GPT-NeoX": "gpt_neox",
    "OPT": "opt",
    "Mixtral": "mixtral",
    "Qwen3-MoE": "qwen3_moe",
    "GPT-OSS": "gpt_oss",
}


def model_features(name: str) -> list[Feature]:
    """Return the features of a row of the second table."""
    return [Feature(f"{name}, {way}", MODELS[name], options) for way, options in WAYS.items()]
