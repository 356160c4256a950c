"""Text generation with a tiny Llama: optimum-habana on the device, or transformers on the CPU."""

from functools import partial
from typing import Any

import torch
from reports import MODE, ON_CPU, count_replays, report

if not ON_CPU:
    from optimum.habana.transformers.modeling_utils import adapt_transformers_to_gaudi

    adapt_transformers_to_gaudi()

from tiny_models import llama

_PROMPTS = torch.tensor([[0, 0, 5, 9, 3], [1, 6, 7, 8, 9]])
_TOKENS = 12


def model(graphs: bool):
    """Return the model, optionally wrapped in HPU Graphs."""
    torch.manual_seed(0)
    chosen = llama().eval()
    if not ON_CPU:
        chosen = chosen.to("hpu")
    if graphs:
        from habana_frameworks.torch.hpu import wrap_in_hpu_graph

        chosen = wrap_in_hpu_graph(chosen)
    return chosen


def generate(graphs: bool = False, seed: int = 0, **options) -> dict[str, Any]:
    """Generate a fixed number of tokens for prompts of two lengths."""
    from transformers import GenerationConfig

    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    length = {"max_new_tokens": _TOKENS, "min_new_tokens": _TOKENS}
    configuration = GenerationConfig(**ends, **length, **{"do_sample": False, **options})
    called: dict[str, Any] = {"generation_config": configuration}
    device = "cpu"
    replays = (lambda: 0) if ON_CPU else count_replays()
    if not ON_CPU:
        device = "hpu"
        configuration.static_shapes = True
        called |= {"lazy_mode": MODE == "lazy", "hpu_graphs": graphs}
        called["ignore_eos"] = configuration.ignore_eos = bool(options.get("ignore_eos"))
    chosen = model(graphs)
    torch.manual_seed(seed)
    tokens = chosen.generate(
        _PROMPTS.to(device), attention_mask=(_PROMPTS != 0).long().to(device), **called
    )
    return {"tokens": tokens.cpu().tolist(), "device": tokens.device.type, "replays": replays()}


def sampled() -> dict[str, Any]:
    """Sample from the five most likely tokens, twice with one seed and once with another."""
    options = {"do_sample": True, "top_k": 5}
    first, again, other = (generate(seed=seed, **options)["tokens"] for seed in (1, 1, 2))
    return {"first": first, "again": again, "other": other}


CASES = {
    "greedy": partial(generate),
    "beams": partial(generate, num_beams=3),
    "sampled": sampled,
    "most likely": partial(generate, do_sample=True, top_k=1),
}
INTERNAL = {"reuse_cache": True, "bucket_size": 8, "bucket_internal": True}
ONLY_ON_DEVICE = {
    "graphs": partial(generate, graphs=True),
    "buckets": partial(generate, bucket_size=8),
    "graphs and buckets": partial(generate, graphs=True, bucket_size=8),
    "first token without graphs": partial(generate, graphs=True, limit_hpu_graphs=True),
    "reused cache": partial(generate, reuse_cache=True),
    "buckets in a reused cache": partial(generate, **INTERNAL),
    "graphs and buckets in a reused cache": partial(generate, graphs=True, **INTERNAL),
    "softmax in bf16": partial(generate, attn_softmax_bf16=True),
    "flash attention": partial(generate, use_flash_attention=True),
    "flash attention, recomputed": partial(
        generate, use_flash_attention=True, flash_attention_recompute=True
    ),
    "trimmed logits": partial(generate, trim_logits=True),
    "ends ignored": partial(generate, ignore_eos=True),
    "beams in a reused cache": partial(generate, num_beams=3, reuse_cache=True),
}

if __name__ == "__main__":
    report(CASES if ON_CPU else {**CASES, **ONLY_ON_DEVICE})
