"""Tiny models with random weights, and the tokens that transformers generates with them.

``python models.py KIND FOLDER`` writes a checkpoint to FOLDER, and to ``expected.json`` prompts and
their greedy continuations. vLLM's Gaudi plugin computes in bfloat16 only. Therefore, weights are
bfloat16 numbers, and among many random prompts, those are chosen whose continuation does not depend
on rounding: transformers generates the same tokens in float32, in bfloat16 and with slightly
different weights, and the best token is farthest ahead of the second one.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

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
EXPERTS = {"num_experts_per_tok": 2, "head_dim": 32}
WINDOWS = {"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"]}
KINDS: dict[str, tuple[str, dict[str, Any], int]] = {
    # name: transformers' class, settings, length of the prompts
    "dense": ("Llama", {"num_key_value_heads": 4}, 6),
    "grouped": ("Qwen3", {"num_key_value_heads": 2, "head_dim": 32}, 6),
    "window": ("Mistral", {"num_key_value_heads": 2, "sliding_window": 128}, 200),
    "interleaved": ("Gemma3", {"num_key_value_heads": 2, "head_dim": 32, **WINDOWS}, 200),
    "experts": (
        "Qwen3Moe",
        {"num_key_value_heads": 2, "num_experts": 4, "moe_intermediate_size": 64, **EXPERTS},
        6,
    ),
    "gpt_oss": (
        "GptOss",
        {"num_key_value_heads": 2, "num_local_experts": 4, "sliding_window": 128, **EXPERTS},
        6,
    ),
    "long": ("Llama", {"num_key_value_heads": 2}, 300),
}


def make(kind: str) -> torch.nn.Module:
    """Return a model in float32 whose weights are bfloat16 values."""
    family, settings, _ = KINDS[kind]
    torch.manual_seed(0)
    of_text = "Text" if family == "Gemma3" else ""
    config = getattr(transformers, f"{family}{of_text}Config")(**{**SIZES, **settings})
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{family}ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
            parameter.copy_(parameter.bfloat16().float())
    return model


def _continued(model: torch.nn.Module, prompts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return greedy tokens, and how far the best is ahead of the second, in standard deviations."""
    rows, smallest = prompts, torch.full((len(prompts),), torch.inf)
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            logits = model(rows).logits[:, -1].float()
            best = logits.topk(2).values
            smallest = smallest.minimum((best[:, 0] - best[:, 1]) / logits.std(-1))
            rows = torch.cat([rows, logits.argmax(-1, keepdim=True)], 1)
    return rows[:, prompts.shape[1] :], smallest


def _disturbed(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Return a copy whose weights differ by about as much as bfloat16 numbers are rounded."""
    chance = torch.Generator().manual_seed(seed)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1 + torch.randn(weight.shape, generator=chance) / 256)
    return other


def expected(model: torch.nn.Module, length: int, candidates: int = 96) -> list[dict[str, Any]]:
    """Return the three best prompts of equal length, with their greedy continuations."""
    chance = torch.Generator().manual_seed(1)
    prompts = torch.randint(1, VOCABULARY, (candidates, length), generator=chance)
    tokens, smallest = _continued(model, prompts)
    for variant in (copy.deepcopy(model).bfloat16(), *(_disturbed(model, i) for i in range(4))):
        smallest[(tokens != _continued(variant, prompts)[0]).any(1)] = 0
    chosen = smallest.topk(3).indices.tolist()
    return [{"prompt": prompts[i].tolist(), "tokens": tokens[i].tolist()} for i in chosen]


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
    if form:
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from serving_table import quantized

        getattr(quantized, form)(model, folder)
    else:
        model.bfloat16().save_pretrained(folder)
        model.float()
    tokenizer(folder)
    (folder / "expected.json").write_text(json.dumps(expected(model, KINDS[base][2])))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
