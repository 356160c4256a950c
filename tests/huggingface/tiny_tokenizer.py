"""A tokenizer with the words w0, w1, and so on."""

from tiny_models import VOCABULARY


def tokenizer():
    """Return a tokenizer with the vocabulary of the tiny models."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    words = [*special.values(), *(f"w{i}" for i in range(VOCABULARY - len(special)))]
    split = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    split.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=split, **special)
