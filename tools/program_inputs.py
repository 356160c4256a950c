"""Write tiny models with random weights, and texts, for programs that read both from files.

Usage: python tools/start_program.py cpu program_inputs FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

_SENTENCE = "the card runs one graph for each step of a model and reads few values"
_TEMPLATE = "{% for message in messages %}{{ message.role }} {{ message.content }} {% endfor %}"


def write(folder: Path) -> None:
    """Write the models, and a data set for each TRL script."""
    tokenizer = _tokenizer()
    size = {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    layers = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    gpt2 = transformers.GPT2Config(**size, n_embd=64, n_layer=2, n_head=4, num_labels=1)
    created: dict[str, Any] = {
        "llama": transformers.LlamaForCausalLM(transformers.LlamaConfig(**size, **layers)),
        "qwen2": transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**size, **layers)),
        "mistral": transformers.MistralForCausalLM(transformers.MistralConfig(**size, **layers)),
        "olmo2": transformers.Olmo2ForCausalLM(transformers.Olmo2Config(**size, **layers)),
        "gpt2": transformers.GPT2ForSequenceClassification(gpt2),
    }
    for name, model in created.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    words = _SENTENCE.split()
    texts = [" ".join(words[i % 5 : 6 + i % 7]) for i in range(16)]
    question = [{"role": "user", "content": "what runs"}]
    pairs = [
        {"prompt": question, "chosen": _answer(text), "rejected": _answer(text[:8])}
        for text in texts
    ]
    judged = [
        {"prompt": question, "completion": _answer(text), "label": i % 2 == 0}
        for i, text in enumerate(texts)
    ]
    data_sets = {
        "sft": [{"text": text} for text in texts],
        "dpo": pairs,
        "kto": judged,
        "reward": pairs,
    }
    for name, rows in data_sets.items():
        (folder / name).mkdir()
        (folder / name / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))


def _answer(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def _tokenizer() -> Any:
    """Return a tokenizer with one token per word."""
    words = ["<pad>", "<s>", "</s>", "<unk>", *_SENTENCE.split(), "user", "assistant", "what"]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=_TEMPLATE,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
