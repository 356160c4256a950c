"""A tokenizer whose words are called w0, w1 and so on."""

from __future__ import annotations

from typing import Any

from tiny_models import VOCABULARY


def tokenizer() -> Any:
    """Return a tokenizer of the models' vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    words = [*special.values(), *(f"w{i}" for i in range(VOCABULARY - len(special)))]
    split = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    split.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=split, **special)
