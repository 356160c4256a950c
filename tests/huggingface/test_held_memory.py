"""%hpu_memory over models of transformers, with their caches of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hpu_magic.simulator import activate

activate(announce=False)  # before a library asks PyTorch which accelerator there is
pytest.importorskip("transformers")

from features import TRANSFORMERS, proves  # noqa: E402
from tiny_models import MODELS, llama, t5, tokens  # noqa: E402


def paths(text: str) -> list[str]:
    """Names and paths of what holds memory, in their order."""
    held = text.replace("\N{NO-BREAK SPACE}", " ").partition("Held by variables\n")[2]
    return [line.split()[0] for line in held.splitlines()[1:]]


@proves(TRANSFORMERS, "`%hpu_memory`: modules of a model and its key/value cache")
def test_layers_and_caches_are_named(run: Callable[[str], Any], shell: Any) -> None:
    shell.user_ns.update(model=llama(num_hidden_layers=12).to("hpu"), ids=tokens().to("hpu"))
    run("import torch\nwith torch.no_grad(): out = model(ids, use_cache=True)")
    text = repr(run("%hpu_memory").result)
    assert paths(text) == [
        "model",
        "model.model.layers.*",
        "model.model.layers.*.mlp",
        "model.model.layers.*.self_attn",
        "model.model.embed_tokens",
        "model.lm_head",
        "out",
        "out.past_key_values",
        "ids",
    ]
    # Two rows of eight tokens, two heads of eight numbers, keys and values in float32.
    size = 12 * 2 * (2 * 8 * 2 * 8 * 4) / 1024
    assert f"{size:.1f} KiB  DynamicCache: keys and values of 12 layers" in text


def test_a_cache_that_a_model_keeps_is_its_own(run: Callable[[str], Any], shell: Any) -> None:
    from transformers import StaticCache

    model = llama().to("hpu")
    cache = StaticCache(config=model.config, max_cache_len=128)
    shell.user_ns.update(model=model, ids=tokens().to("hpu"))
    model._kept = cache
    run("model.generate(ids, past_key_values=model._kept, max_new_tokens=2, pad_token_id=0); None")
    text = repr(run("%hpu_memory").result)
    assert "model._kept" in paths(text)
    assert "StaticCache: keys and values of 2 layers" in text


def test_a_list_within_a_layer_is_opened(run: Callable[[str], Any], shell: Any) -> None:
    shell.user_ns["model"] = t5().to("hpu")
    assert {"model.decoder.block.*", "model.decoder.block.*.layer.2"} < set(
        paths(repr(run("%hpu_memory").result))
    )


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_told_in_a_few_lines(name: str) -> None:
    from hpu_magic.runtime.measure.holders import holders, lines

    [holder] = holders({"model": MODELS[name][0]().to("hpu")})
    told = list(lines(holder))
    assert 2 <= len(told) <= 8
    assert all(path.strip().startswith("model.") for path, _, _ in told)
    indent = len(told[0][0]) - len(told[0][0].lstrip())
    outermost = [size for path, size, _ in told if len(path) - len(path.lstrip()) == indent]
    assert 0.8 * holder.size < sum(outermost) <= holder.size
