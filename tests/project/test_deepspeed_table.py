"""Test the table of DeepSpeed's features: how rows are evaluated and written."""

import dataclasses
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from deepspeed_table.__main__ import judge
from deepspeed_table.features import FEATURES, Feature, Limit, Phase
from deepspeed_table.page import TABLE, row
from deepspeed_table.processes import Result

PHASES = (Phase("training.train"),)
ROW = Feature("A row", PHASES)
LIMIT = Limit("DeepSpeed has no operator", "no operator")
IMPOSSIBLE = Feature("Another", PHASES, limit=LIMIT)
ALONE = dataclasses.replace(IMPOSSIBLE, alone=True)
NUMBERS, FAILED = Result((1.0,)), Result(error="RuntimeError: no operator")
OTHERWISE = Result(error="RuntimeError: no memory")


@pytest.mark.parametrize(
    ("feature", "here", "there", "good"),
    [
        (ROW, Result((1.0, 2.0)), Result((1.0, 2.0)), True),
        (ROW, Result((1.0, 2.1)), Result((1.0, 2.0)), False),
        (ROW, Result((1.0,)), Result((1.0, 2.0)), False),
        (ROW, Result((float("nan"),)), Result((float("nan"),)), False),
        (ROW, Result(), Result(), False),
        (ROW, FAILED, Result((1.0,)), False),
        (ROW, Result((1.0,)), FAILED, False),
        (ROW, FAILED, FAILED, False),
        (IMPOSSIBLE, FAILED, FAILED, True),
        (IMPOSSIBLE, OTHERWISE, FAILED, False),
        (IMPOSSIBLE, FAILED, NUMBERS, False),
        (IMPOSSIBLE, NUMBERS, FAILED, False),
        (ALONE, FAILED, Result(), True),
        (ALONE, OTHERWISE, Result(), False),
        (ALONE, NUMBERS, Result(), False),
    ],
)
def test_row_is_good_if_numbers_agree_or_if_it_says_why_it_cannot_work(feature, here, there, good):
    assert judge(feature, here, there)[0] is good


def test_page_lists_all_features_and_their_references_exist():
    names = [each.name for each in FEATURES]
    assert len({*names}) == len(names)
    assert {each.reference for each in FEATURES if each.reference} <= {*names}
    assert TABLE.listed() == names


def test_row_names_its_reference():
    assert row(ROW, "good") == ("A row", "2", "the CPU", "good")
    assert row(ALONE, "works")[2] == "-"
    assert row(dataclasses.replace(ROW, reference="ZeRO 2"), "")[2] == "ZeRO 2 on the CPU"
    assert row(dataclasses.replace(ROW, reference="DDP", compared="hpu"), "")[2] == "DDP on cards"
