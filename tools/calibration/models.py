"""The measured models, built without weights from their published shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

# Maps each model to its family. The errors for a family are calculated with a fit that leaves it
# out.
FAMILIES = {
    "resnet-50": "ResNet",
    "vit-base": "ViT",
    "roberta-base-qa": "RoBERTa",
    "roberta-large-qa": "RoBERTa",
    "roberta-large-mlm": "RoBERTa",
    "gpt-85m": "GPT-2",
    "gpt2": "GPT-2",
    "gpt2-xl": "GPT-2",
    "gemma-2b": "Gemma",
    "gemma-7b": "Gemma",
    "gemma-2-9b": "Gemma",
    "gemma-2-27b": "Gemma",
    "llama-7b": "Llama",
    "llama-2-7b": "Llama",
    "llama-2-13b": "Llama",
    "llama-2-70b": "Llama",
    "llamaguard-7b": "Llama",
    "codellama-13b": "Llama",
    "codellama-34b": "Llama",
    "bloomz-7b1": "BLOOM",
    "bloomz-176b": "BLOOM",
    "starcoder": "StarCoder",
}

# Number of layers in models whose layers are identical.
LAYERS = {
    "gpt-85m": 12,
    "gpt2": 12,
    "gpt2-xl": 48,
    "gemma-2b": 18,
    "gemma-7b": 28,
    "gemma-2-9b": 42,
    "gemma-2-27b": 46,
    "llama-7b": 32,
    "llama-2-7b": 32,
    "llama-2-13b": 40,
    "llama-2-70b": 80,
    "codellama-13b": 40,
    "codellama-34b": 48,
    "bloomz-7b1": 30,
    "bloomz-176b": 70,
    "roberta-base-qa": 12,
    "roberta-large-qa": 24,
    "roberta-large-mlm": 24,
    "llamaguard-7b": 32,
    "starcoder": 40,
    "vit-base": 12,
}


def built(
    name: str, layers: int | None = None, attention: str | None = None, device: str = "meta"
) -> nn.Module:
    """Return a model of `FAMILIES` in training mode, by default with all layers.

    ``attention`` selects whether the model's code ("eager") or PyTorch's operator ("sdpa") computes
    attention.
    """
    with torch.device(device):
        model = _BUILDERS[name](layers or LAYERS.get(name, 0))
    if attention is not None and name in LAYERS:
        model.set_attn_implementation(attention)  # type: ignore[operator]
    return model


def _decoder(
    family: str, hidden: int, heads: int, key_heads: int, inner: int, **others: int
) -> Callable[[int], nn.Module]:
    def build(layers: int) -> nn.Module:
        import transformers

        configuration = getattr(transformers, f"{family}Config")(
            num_hidden_layers=layers,
            hidden_size=hidden,
            num_attention_heads=heads,
            num_key_value_heads=key_heads,
            intermediate_size=inner,
            **others,
        )
        model: nn.Module = getattr(transformers, f"{family}ForCausalLM")(configuration)
        return model

    return build


def _llama(
    hidden: int, heads: int, key_heads: int, inner: int, vocabulary: int = 32000
) -> Callable[[int], nn.Module]:
    others = {"vocab_size": vocabulary, "max_position_embeddings": 4096}
    return _decoder("Llama", hidden, heads, key_heads, inner, **others)


def _llamaguard(layers: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaForSequenceClassification

    return LlamaForSequenceClassification(
        LlamaConfig(num_hidden_layers=layers, num_labels=2, pad_token_id=0)
    )


def _gpt2(hidden: int, heads: int, **others: int) -> Callable[[int], nn.Module]:
    def build(layers: int) -> nn.Module:
        from transformers import GPT2Config, GPT2LMHeadModel

        return GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=hidden, n_head=heads, **others))

    return build


def _gemma(
    family: str, hidden: int, heads: int, key_heads: int, inner: int, head: int
) -> Callable[[int], nn.Module]:
    others = {"head_dim": head, "vocab_size": 256000}
    return _decoder(family, hidden, heads, key_heads, inner, **others)


def _bloom(hidden: int, heads: int) -> Callable[[int], nn.Module]:
    def build(layers: int) -> nn.Module:
        from transformers import BloomConfig, BloomForCausalLM

        return BloomForCausalLM(
            BloomConfig(vocab_size=250880, n_layer=layers, hidden_size=hidden, n_head=heads)
        )

    return build


def _starcoder(layers: int) -> nn.Module:
    from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM

    return GPTBigCodeForCausalLM(
        GPTBigCodeConfig(
            vocab_size=49152,
            n_positions=8192,
            n_layer=layers,
            n_embd=6144,
            n_head=48,
            n_inner=24576,
            multi_query=True,
        )
    )


def _roberta(kind: str, hidden: int, heads: int) -> Callable[[int], nn.Module]:
    def build(layers: int) -> nn.Module:
        import transformers

        config = transformers.RobertaConfig(
            vocab_size=50265,
            num_hidden_layers=layers,
            hidden_size=hidden,
            num_attention_heads=heads,
            intermediate_size=4 * hidden,
            max_position_embeddings=514,
            type_vocab_size=1,
        )
        model: nn.Module = getattr(transformers, f"RobertaFor{kind}")(config)
        return model

    return build


def _vit(layers: int) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(num_hidden_layers=layers))


def _resnet(_: int) -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=1000))


_BUILDERS: dict[str, Callable[[int], nn.Module]] = {
    "resnet-50": _resnet,
    "vit-base": _vit,
    "roberta-base-qa": _roberta("QuestionAnswering", 768, 12),
    "roberta-large-qa": _roberta("QuestionAnswering", 1024, 16),
    "roberta-large-mlm": _roberta("MaskedLM", 1024, 16),
    "gpt-85m": _gpt2(768, 12, vocab_size=3, n_positions=16),
    "gpt2": _gpt2(768, 12),
    "gpt2-xl": _gpt2(1600, 25),
    "gemma-2b": _gemma("Gemma", 2048, 8, 1, 16384, 256),
    "gemma-7b": _gemma("Gemma", 3072, 16, 16, 24576, 256),
    "gemma-2-9b": _gemma("Gemma2", 3584, 16, 8, 14336, 256),
    "gemma-2-27b": _gemma("Gemma2", 4608, 32, 16, 36864, 128),
    "llama-7b": _llama(4096, 32, 32, 11008),
    "llama-2-7b": _llama(4096, 32, 32, 11008),
    "llama-2-13b": _llama(5120, 40, 40, 13824),
    "llama-2-70b": _llama(8192, 64, 8, 28672),
    "llamaguard-7b": _llamaguard,
    "codellama-13b": _llama(5120, 40, 40, 13824, 32016),
    "codellama-34b": _llama(8192, 64, 8, 22016),
    "bloomz-7b1": _bloom(4096, 32),
    "bloomz-176b": _bloom(14336, 112),
    "starcoder": _starcoder,
}


def inputs(name: str, batch: int, tokens: int) -> dict[str, Any]:
    """Return the inputs of a training step of a model; images have a width of `tokens`."""
    if name in ("resnet-50", "vit-base"):
        return {
            "pixel_values": torch.empty(batch, 3, tokens, tokens, device="meta"),
            "labels": torch.empty(batch, dtype=torch.long, device="meta"),
        }
    ids = torch.empty(batch, tokens, dtype=torch.long, device="meta")
    if name.endswith("-qa"):
        place = torch.empty(batch, dtype=torch.long, device="meta")
        return {"input_ids": ids, "start_positions": place, "end_positions": place}
    if name == "llamaguard-7b":
        label = torch.empty(batch, dtype=torch.long, device="meta")
        return {"input_ids": ids, "labels": label, "use_cache": False}
    if name.startswith("roberta"):
        return {"input_ids": ids, "labels": ids}
    return {"input_ids": ids, "labels": ids, "use_cache": False}


def train_adapters(model: nn.Module, adapters: str) -> None:
    """Freeze a model and add low-rank adapters to some of its layers, such as `lora8:q,v`."""
    rank, _, layers = adapters.removeprefix("lora").partition(":")
    wanted = {f"{each}_proj" for each in layers.split(",")}
    model.requires_grad_(False)
    for name, module in list(model.named_modules()):
        parent, _, own = name.rpartition(".")
        if isinstance(module, nn.Linear) and own in wanted:
            setattr(model.get_submodule(parent), own, _Adapted(module, int(rank)))


class _Adapted(nn.Module):
    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        device = base.weight.device
        self.down = nn.Linear(base.in_features, rank, bias=False, device=device)
        self.up = nn.Linear(rank, base.out_features, bias=False, device=device)
        self.dropout = nn.Dropout(0.05)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the layer's output and the adapters' output."""
        return self.base(x) + 2.0 * self.up(self.down(self.dropout(x)))
