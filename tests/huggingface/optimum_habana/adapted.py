"""Models that `adapt_transformers_to_gaudi` changes, or transformers' own models on the CPU."""

import tempfile
from functools import partial
from typing import Any

import torch
from reports import ON_CPU, count_replays, report
from tiny_models import MODELS, bert, losses_of, mixtral, qwen2_moe, text
from tiny_tokenizer import tokenizer

NAMES = ("Llama", "GPT-2", "BERT", "T5", "ViT", "Whisper")
MIXTURES = {
    # With SDPA, the default, optimum-habana's Mixtral does not mask later tokens.
    "Mixtral": partial(mixtral, attn_implementation="eager"),
    "Qwen2-MoE": qwen2_moe,
}


def adapt():
    """Make transformers create optimum-habana's models."""
    from optimum.habana.transformers.modeling_utils import adapt_transformers_to_gaudi

    adapt_transformers_to_gaudi()


def train(name: str) -> dict[str, Any]:
    """Return the losses of three steps, and the logits afterwards."""
    make, batch = MODELS[name]
    device = "cpu" if ON_CPU else "hpu"
    torch.manual_seed(0)
    model = make().to(device).train()
    inputs = {key: value.to(device) for key, value in batch().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = losses_of(model, inputs, optimizer)
    with torch.no_grad():
        logits = model.eval()(**inputs).logits.float().cpu()
    return {
        "class": type(model).__name__,
        "device": model.device.type,
        "losses": losses,
        "logits": logits[0].flatten().tolist(),
    }


def mix(name: str) -> dict[str, Any]:
    """Return the logits of a mixture of experts, and the weights without a gradient."""
    device = "cpu" if ON_CPU else "hpu"
    model = MIXTURES[name]()
    generator = torch.Generator().manual_seed(0)  # the adapted model initializes differently
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            weight.copy_(torch.randn(weight.shape, generator=generator) / 8)
    model.to(device)
    inputs = {key: value.to(device) for key, value in text().items()}
    with torch.no_grad():
        logits = model.eval()(**inputs).logits.cpu()
    model.train()(**inputs).loss.backward()
    parameters = dict(model.named_parameters())
    return {
        "class": type(model).__name__,
        "device": model.device.type,
        "logits": logits.flatten().tolist(),
        "without gradient": [name for name in parameters if parameters[name].grad is None],
        "experts and routers": [
            name for name in parameters if ".experts." in name or name.endswith(".gate.weight")
        ],
    }


def embed() -> dict[str, Any]:
    """Embed sentences with sentence-transformers, in HPU Graphs on the device."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    replays = (lambda: 0) if ON_CPU else count_replays()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        bert().bert.save_pretrained(folder)
        tokenizer().save_pretrained(folder)
        transformer = Transformer(folder)
    pooling = Pooling(transformer.get_word_embedding_dimension())
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu" if ON_CPU else None)
    sentences = ["w1 w2", "w3 w4 w5 w6 w7", "w9", "w8 w1 w2"]
    first, second = (model.encode(sentences).tolist() for _ in range(2))
    return {
        "device": model.device.type,
        "embeddings": first,
        "again": first == second,
        "replays": replays(),
    }


if __name__ == "__main__":
    if not ON_CPU:
        adapt()
    trained = {name: partial(train, name) for name in NAMES}
    report({**trained, **{name: partial(mix, name) for name in MIXTURES}, "sentences": embed})
