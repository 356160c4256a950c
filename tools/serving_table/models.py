"""Tiny models with random weights, and the tokens that transformers generates with them.

``python models.py KIND FOLDER`` writes a checkpoint to FOLDER, and prompts with their greedy
continuations to ``expected.json``. vLLM's Gaudi plugin computes in bfloat16 only. Therefore,
weights are bfloat16 numbers, and the prompts are selected from many random ones so that their
continuations do not depend on rounding: transformers generates the same tokens in float32, in
bfloat16 and with slightly different weights. Of these prompts, the script keeps those whose best
token is farthest ahead of the second one.

If the plugin computes something other than the model's definition (``plugin_rules.py``), the tokens
are those of the plugin's rules, and ``by_definition`` contains the tokens of the definition.
"""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

sys.path.append(str(Path(__file__).parents[1]))

from serving_table import plugin_rules, quantized

VOCABULARY, NEW_TOKENS = 256, 12
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": None,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
GROUPED = {"num_key_value_heads": 2}
WIDE = {**GROUPED, "head_dim": 32}
EXPERTS = {**WIDE, "num_experts_per_tok": 2}
WINDOW = {"sliding_window": 128}
ALTERNATING = {**WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
GPT2 = {"n_embd": 128, "n_inner": 256, "n_layer": 2, "n_head": 4, "n_positions": 512}
MULTIPLIERS = {
    "embedding_multiplier": 2.0,
    "residual_multiplier": 0.5,
    "attention_multiplier": 0.2,
    "logits_scaling": 2.0,
}


@dataclass(frozen=True)
class Kind:
    """A transformers class, its settings and the length of the prompts."""

    family: str
    settings: dict[str, Any] = field(default_factory=dict)
    length: int = 6


KINDS = {
    "llama": Kind("Llama", {"num_key_value_heads": 4}),
    "llama_long": Kind("Llama", GROUPED, 300),
    "qwen2": Kind("Qwen2", GROUPED),
    "qwen3": Kind("Qwen3", WIDE),
    "mistral": Kind("Mistral", {**GROUPED, "sliding_window": None}),
    "mistral_window": Kind("Mistral", {**GROUPED, **WINDOW}, 200),
    "phi3": Kind("Phi3", {**GROUPED, "sliding_window": None}),
    "granite": Kind("Granite", {**GROUPED, **MULTIPLIERS}),
    "gemma3": Kind("Gemma3", {**WIDE, **ALTERNATING}),
    "gemma3_window": Kind("Gemma3", {**WIDE, **ALTERNATING}, 200),
    "starcoder2": Kind("Starcoder2", {**GROUPED, "sliding_window": None}),
    "gpt2": Kind("GPT2", GPT2),
    "gpt_neox": Kind("GPTNeoX"),
    "opt": Kind("OPT", {"ffn_dim": 256, "word_embed_proj_dim": 128}),
    "mixtral": Kind("Mixtral", {**EXPERTS, "num_local_experts": 4, "sliding_window": None}),
    "qwen3_moe": Kind(
        "Qwen3Moe",
        # The plugin always normalizes the weights of the selected experts.
        {**EXPERTS, "num_experts": 4, "moe_intermediate_size": 64, "norm_topk_prob": True},
    ),
    "gpt_oss": Kind("GptOss", {**EXPERTS, **ALTERNATING, "num_local_experts": 4}),
}


def make(kind: str) -> torch.nn.Module:
    """Return a model in float32 whose weights are bfloat16 values."""
    family = KINDS[kind].family
    torch.manual_seed(0)
    of_text = "Text" if family == "Gemma3" else ""
    make_config = getattr(transformers, f"{family}{of_text}Config")
    config = make_config(**{**SIZES, **KINDS[kind].settings})
    config._attn_implementation = "eager"
    head = "LMHeadModel" if family == "GPT2" else "ForCausalLM"
    model = getattr(transformers, f"{family}{head}")(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
            else:  # biases, sinks and the weights of norms
                parameter.add_(torch.randn(parameter.shape) / 8)
            parameter.copy_(parameter.bfloat16().float())
    return model


def _continued(
    model: torch.nn.Module, prompts: torch.Tensor, by_definition: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return greedy tokens, and the best token's lead over the second, in standard deviations."""
    rows, smallest = prompts, torch.full((len(prompts),), torch.inf)
    options: dict[str, Any] = {"use_cache": False}
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            if not by_definition:
                options["attention_mask"] = plugin_rules.masks(
                    model.config, len(prompts), prompts.shape[1], rows.shape[1]
                )
            logits = model(rows, **options).logits[:, -1].float()
            best = logits.topk(2).values
            smallest = smallest.minimum((best[:, 0] - best[:, 1]) / logits.std(-1))
            rows = torch.cat([rows, logits.argmax(-1, keepdim=True)], 1)
    return rows[:, prompts.shape[1] :], smallest


def _disturbed(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Return a copy whose weights differ by about the rounding error of bfloat16."""
    chance = torch.Generator().manual_seed(seed)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1 + torch.randn(weight.shape, generator=chance) / 256)
    return other


def expected(
    model: torch.nn.Module, length: int, definition: torch.nn.Module | None = None
) -> list[dict[str, Any]]:
    """Return the three best prompts of equal length, with their greedy continuations.

    If the plugin's rules change the tokens of some prompts, these prompts are preferred.
    `definition` is a model without the plugin's rules, if it differs from `model`.
    """
    chance = torch.Generator().manual_seed(1)
    prompts = torch.randint(1, VOCABULARY, (max(30, 720 // length), length), generator=chance)
    tokens, smallest = _continued(model, prompts, False)
    other = _continued(definition or model, prompts, True)[0]
    differs = (tokens != other).any(1)
    order = (smallest + 1000 * differs).argsort(descending=True)[: max(12, 720 // length)]
    prompts, tokens, other = prompts[order], tokens[order], other[order]
    stable = torch.ones(len(prompts), dtype=torch.bool)
    for variant in (copy.deepcopy(model).bfloat16(), *(_disturbed(model, i) for i in range(3))):
        stable &= (tokens == _continued(variant, prompts, False)[0]).all(1)
    if stable.sum() < 3:
        changed = f"{len(prompts) - stable.sum()} of {len(prompts)}"
        raise RuntimeError(f"Rounding changes the tokens of {changed} prompts.")
    columns = (each[stable][:3].tolist() for each in (prompts, tokens, other))
    rows = zip(*columns, strict=True)
    return [{"prompt": a, "tokens": b, "by_definition": c} for a, b, c in rows]


def tokenizer(folder: Path) -> None:
    """Write a tokenizer with one token per printable character."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    characters = [chr(code) for code in range(33, 33 + VOCABULARY - 2)]
    vocabulary = {token: i for i, token in enumerate(["<s>", "<unk>", *characters])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="<s>", unk_token="<unk>"
    ).save_pretrained(folder)


def main(kind: str, folder: Path) -> None:
    """Write the checkpoint and the expected tokens of a kind, or of its quantized form."""
    base, _, form = kind.partition("-")
    model = make(base)
    definition = None
    if form:
        definition = getattr(quantized, form)(model, folder)
    else:
        model.bfloat16().save_pretrained(folder)
        model.float()
    tokenizer(folder)
    rows = expected(model, KINDS[base].length, definition)
    (folder / "expected.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
