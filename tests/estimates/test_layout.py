"""Test layouts of cards, and each card's share of the work."""

import pytest
from torch import nn

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.layout import Layout, parse
from hpu_magic.estimates.stages import layers_in_sequence


@pytest.mark.parametrize(
    ("cards", "parallel", "layout"),
    [
        (None, None, Layout()),
        (8, None, Layout(cards=8, data=8)),
        (8, "ddp", Layout(cards=8, data=8)),
        (8, "fsdp", Layout(cards=8, data=8, zero=3)),
        (1, "zero2", Layout()),
        (None, "tp=4", Layout(cards=4, tensor=4)),
        (8, "TP=2, pp=2, zero1", Layout(8, 2, zero=1, in_float32=True, tensor=2, pipeline=2)),
        (16, "tp=8*pp=2", Layout(cards=16, tensor=8, pipeline=2)),
        (4, "tp=2+ddp", Layout(cards=4, data=2, tensor=2)),
    ],
)
def test_layout_is_parsed(cards, parallel, layout):
    assert parse(cards, parallel) == layout


@pytest.mark.parametrize(
    "parallel", ["ddp", "fsdp", "zero1", "zero3", "tp=2,zero2", "tp=2,pp=2,fsdp"]
)
def test_text_of_a_layout_can_be_parsed(parallel):
    assert str(parse(8, parallel)) == parallel


@pytest.mark.parametrize(
    ("cards", "parallel", "message"),
    [
        (0, None, r"cards=0 is not a number of cards"),
        (10**9, None, r"cards=1000000000 is not a number of cards: use 1 to 65536"),
        (8, "tp=3", r"cards=8 is not divisible by tp=3: use cards=3 or a multiple"),
        (2, "tp=2,pp=2", r"cards=2 is not divisible by tp=2 times pp=2: use cards=4 or"),
        (8, "ddp,zero1", r"divides the batch by both ddp and zero1"),
        (8, "zero1+zero3", r"divides the batch by both zero1 and zero3"),
        (
            8,
            "tp=8,zero3",
            r"tp=8 puts all 8 cards into one group: use cards=16 or more, or omit zero3",
        ),
        (8, "tp=2,tp=4", r"contains tp twice"),
        (8, "tp=1,tp=2", r"contains tp twice"),
        (8, "tp", r"'tp' is not valid; use tp=N"),
        (8, "pp=0", r"'pp=0' is not valid; use pp=N with N from 1 to 65536"),
        (8, "tp=-2", r"'tp=-2' is not valid"),
        (8, "dp=8", r"'dp=8' is unknown; use ddp, zero1"),
        (8, "zero4", r"'zero4' is unknown"),
    ],
)
def test_impossible_layouts_are_refused(cards, parallel, message):
    with pytest.raises(EstimateError, match=message):
        parse(cards, parallel)


class Block(nn.Module):
    """Two independent layers."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([nn.Sequential(nn.Linear(2, 2)) for _ in range(4)])


class Pair(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (nn.Linear(2, 2), 1),
        (Pair(nn.Linear(2, 2), nn.Linear(2, 2)), 2),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), 2),
        (nn.ModuleList([Block() for _ in range(3)]), 3),
        (nn.ModuleList([nn.Sequential(Block(), Block()) for _ in range(3)]), 6),
        (Pair(nn.ModuleList([Block(), Block()]), nn.ModuleList([Block()])), 3),
    ],
)
def test_layers_in_sequence_are_those_of_lists(model, count):
    assert layers_in_sequence(model) == count
