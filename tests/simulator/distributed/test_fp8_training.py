"""FP8 training on two cards: the scales equal those of one card with the batches of both."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn


def scales(module, rows, group=None, **options):
    """Run three steps on some rows of the batches, and return all scales."""
    import habana_frameworks.torch.hpex.experimental.transformer_engine as te

    os.environ["PT_TE_FORCE_SR_BWD"] = (
        "0"  # ranks would round different rows with equal random numbers
    )
    scaling = te.recipe.DelayedScaling(amax_history_len=2, **options)
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        data = torch.randn(8, 6, generator=generator) * torch.arange(1.0, 9.0)[:, None]
        with te.fp8_autocast(fp8_recipe=scaling, fp8_group=group):
            out = module(data[rows].to("hpu"))
        out.backward(data[rows][:, :4].to("hpu", out.dtype))
    return [
        meta.scale.tolist()
        for each in module.modules()
        for name, meta in getattr(each, "fp8_meta", {}).items()
        if name != "recipe"
    ]


def layers():
    import habana_frameworks.torch.hpex.experimental.transformer_engine as te

    torch.manual_seed(0)
    return nn.Sequential(te.Linear(6, 6), te.LayerNormLinear(6, 4))


def all_scales(parallel):
    rank = dist.get_rank()
    mine = slice(4 * rank, 4 * rank + 4)
    own_group = [dist.new_group([each]) for each in range(2)][rank]
    wrap = nn.parallel.DistributedDataParallel if parallel else nn.Sequential
    return {
        "together": scales(wrap(layers()), mine),
        "one card": scales(layers(), slice(8), reduce_amax=False),
        "apart": scales(wrap(layers()), mine, reduce_amax=False),
        "separate groups": scales(wrap(layers()), mine, group=own_group),
    }


@pytest.mark.parametrize("parallel", [False, True])
def test_cards_share_the_largest_magnitudes(pair, parallel):
    first, second = pair(all_scales, parallel)
    assert first["together"] == second["together"] == first["one card"] == second["one card"]
    assert first["apart"] != second["apart"]
    assert first["separate groups"] == first["apart"]
    assert second["separate groups"] == second["apart"]
