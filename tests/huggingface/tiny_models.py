"""Models with two layers and random weights, and a batch for each."""

from collections.abc import Callable
from typing import Any

import torch

VOCABULARY = 64
_ENCODER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_LLAMA = {
    "vocab_size": VOCABULARY,
    **_ENCODER,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
# Arguments of a trainer that logs each step and saves nothing.
LOGGED = {"logging_steps": 1, "save_strategy": "no", "report_to": [], "disable_tqdm": True}
Batch = dict[str, torch.Tensor]


def tokens(rows: int = 2, length: int = 8, seed: int = 0) -> torch.Tensor:
    """Return random tokens, excluding special tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (rows, length), generator=generator)


def text(rows: int = 2, length: int = 8) -> Batch:
    """Return a batch of text with a label for every token."""
    ids = tokens(rows, length)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def sentences(
    rows: int, length: int = 8, labels: Callable[[torch.Tensor, int], torch.Tensor] | None = None
) -> list[Batch]:
    """Return rows of text; their labels are the tokens, or a function of tokens and row."""
    return [
        {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "labels": ids if labels is None else labels(ids, row),
        }
        for row, ids in enumerate(tokens(rows, length))
    ]


def parity(ids: torch.Tensor, _: int) -> torch.Tensor:
    """Return the parity of the sum of the tokens, as a class label."""
    return ids.sum() % 2


def losses_of(model, inputs: Batch, optimizer: torch.optim.Optimizer) -> list[float]:
    """Return the losses of three training steps."""
    losses = []
    for _ in range(3):
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def pixels() -> torch.Tensor:
    """Return two small images."""
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def llama(**options):
    """Return a decoder with grouped-query attention."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**{**_LLAMA, **options}))


def gpt2(**options):
    """Return a decoder with learned positions, without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return GPT2LMHeadModel(GPT2Config(**{**sizes, **special, **drops, **options}))


def bert(**options):
    """Return a text classifier without dropout."""
    from transformers import BertConfig, BertForSequenceClassification

    drops = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    sizes = {"vocab_size": VOCABULARY, "max_position_embeddings": 128, **_ENCODER}
    return BertForSequenceClassification(BertConfig(**{**sizes, **drops, **options}))


def t5(**options):
    """Return an encoder-decoder model without dropout."""
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    special = {"decoder_start_token_id": 0, "eos_token_id": 2, "pad_token_id": 0}
    fixed = {"vocab_size": VOCABULARY, "dropout_rate": 0.0}
    return T5ForConditionalGeneration(T5Config(**{**sizes, **special, **fixed, **options}))


def vit():
    """Return an image classifier."""
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, **_ENCODER))


def whisper():
    """Return a speech recognition model without dropout."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    halves = {
        f"{half}_{size}": number
        for half in ("encoder", "decoder")
        for size, number in {"layers": 2, "attention_heads": 4, "ffn_dim": 48}.items()
    }
    special = {"decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    configuration = WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=8,
        d_model=32,
        max_source_positions=16,
        max_target_positions=32,
        dropout=0.0,
        begin_suppress_tokens=None,
        **halves,
        **special,
    )
    return WhisperForConditionalGeneration(configuration)


def mixtral(**options):
    """Return a mixture of four experts, two per token."""
    from transformers import MixtralConfig, MixtralForCausalLM

    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    return MixtralForCausalLM(MixtralConfig(**{**_LLAMA, **experts, **options}))


def qwen2_moe():
    """Return a mixture of four experts with a shared expert."""
    from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

    experts = {"num_experts": 4, "num_experts_per_tok": 2}
    widths = {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
    return Qwen2MoeForCausalLM(Qwen2MoeConfig(**_LLAMA, **experts, **widths))


PICTURE_TOKEN = 60


def llava():
    """Return a decoder for text with images."""
    from transformers import (
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
    )

    vision = CLIPVisionConfig(image_size=32, patch_size=16, projection_dim=16, **_ENCODER)
    configuration = LlavaConfig(
        vision_config=vision, text_config=LlamaConfig(**_LLAMA), image_token_id=PICTURE_TOKEN
    )
    return LlavaForConditionalGeneration(configuration)


def classified_text() -> Batch:
    """Return a batch of text with two classes."""
    return {**text(), "labels": torch.tensor([0, 1])}


def classified_pictures() -> Batch:
    """Return a batch of images with two classes."""
    return {"pixel_values": pixels(), "labels": torch.tensor([0, 1])}


def transcribed_sound() -> Batch:
    """Return a batch of spectrograms with their tokens."""
    sound = torch.randn(2, 8, 32, generator=torch.Generator().manual_seed(0))
    return {"input_features": sound, "labels": tokens()}


def text_with_pictures() -> Batch:
    """Return a batch of text in which four tokens represent an image."""
    ids = tokens() % PICTURE_TOKEN
    ids[:, 1:5] = PICTURE_TOKEN
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}
    return {**batch, "pixel_values": pixels()}


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Batch]]] = {
    "Llama": (llama, text),
    "GPT-2": (gpt2, text),
    "BERT": (bert, classified_text),
    "T5": (t5, text),
    "ViT": (vit, classified_pictures),
    "Whisper": (whisper, transcribed_sound),
    "Mixtral": (mixtral, text),
    "Qwen2-MoE": (qwen2_moe, text),
    "Llava": (llava, text_with_pictures),
}
