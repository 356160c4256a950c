"""Cards, and what each has of a step."""

import pytest

from hpu_magic.estimate.errors import EstimateError
from hpu_magic.estimate.layout import Layout, parse


@pytest.mark.parametrize(
    ("cards", "parallel", "layout"),
    [
        (None, None, Layout()),
        (8, None, Layout(cards=8, data=8)),
        (8, "ddp", Layout(cards=8, data=8)),
        (8, "fsdp", Layout(cards=8, data=8, zero=3)),
        (1, "zero2", Layout()),
        (None, "tp=4", Layout(cards=4, tensor=4)),
        (8, "TP=2, pp=2, zero1", Layout(cards=8, data=2, zero=1, tensor=2, pipeline=2)),
        (16, "tp=8*pp=2", Layout(cards=16, tensor=8, pipeline=2)),
    ],
)
def test_layout_is_what_was_asked_for(cards, parallel, layout):
    assert parse(cards, parallel) == layout


@pytest.mark.parametrize(
    ("cards", "parallel", "message"),
    [
        (0, None, r"cards=0 is no number of cards"),
        (8, "tp=3", r"8 cards cannot be divided by tp=3 times pp=1: give a multiple of 3"),
        (8, "ddp,zero1", r"says twice how the batch is divided"),
        (8, "tp=2,tp=4", r"gives tp twice"),
        (8, "tp", r"'tp' is unknown; there are ddp, zero1"),
        (8, "zero4", r"'zero4' is unknown"),
    ],
)
def test_impossible_layouts_are_refused(cards, parallel, message):
    with pytest.raises(EstimateError, match=message):
        parse(cards, parallel)
