"""Test `%hpu_memory` with models of transformers and their key/value caches."""

import pytest

pytest.importorskip("transformers")

from features import TRANSFORMERS, proves
from tiny_models import MODELS, llama, t5, tokens


def paths(text):
    """Return the names and paths of memory holders, in order."""
    held = text.replace("\N{NO-BREAK SPACE}", " ").partition("Held by variables\n")[2]
    return [line.split()[0] for line in held.splitlines()[1:]]


@proves(TRANSFORMERS, "`%hpu_memory`: modules of a model and its key/value cache")
def test_memory_report_names_layers_and_caches(run, shell):
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
    # Two rows of eight tokens, two KV heads of width eight, keys and values in float32.
    size = 12 * 2 * (2 * 8 * 2 * 8 * 4) / 1024
    assert f"{size:.1f} KiB  DynamicCache: keys and values of 12 layers" in text


def test_cache_in_an_attribute_belongs_to_its_model(run, shell):
    from transformers import StaticCache

    model = llama().to("hpu")
    cache = StaticCache(config=model.config, max_cache_len=128)
    shell.user_ns.update(model=model, ids=tokens().to("hpu"))
    model._kept = cache
    run("model.generate(ids, past_key_values=model._kept, max_new_tokens=2, pad_token_id=0); None")
    text = repr(run("%hpu_memory").result)
    assert "model._kept" in paths(text)
    assert "StaticCache: keys and values of 2 layers" in text


def test_list_inside_a_layer_is_expanded(run, shell):
    shell.user_ns["model"] = t5().to("hpu")
    assert {"model.decoder.block.*", "model.decoder.block.*.layer.2"} < set(
        paths(repr(run("%hpu_memory").result))
    )


@pytest.mark.parametrize("name", MODELS)
def test_every_model_fits_in_a_few_lines(name):
    from hpu_magic.runtime.measure.holders import holders, lines

    [holder] = holders({"model": MODELS[name][0]().to("hpu")})
    entries = list(lines(holder))
    assert 2 <= len(entries) <= 8
    assert all(path.strip().startswith("model.") for path, _, _ in entries)
    indent = len(entries[0][0]) - len(entries[0][0].lstrip())
    outermost = [size for path, size, _ in entries if len(path) - len(path.lstrip()) == indent]
    assert 0.8 * holder.size < sum(outermost) <= holder.size
