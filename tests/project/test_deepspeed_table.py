"""The table of DeepSpeed's features: how rows are judged and written."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from deepspeed_table import page
from deepspeed_table.__main__ import judge
from deepspeed_table.features import FEATURES, Feature, Phase
from deepspeed_table.processes import Result

ROW = Feature("A row", (Phase("training.train"),))
IMPOSSIBLE = Feature("Another", (Phase("training.train"),), cannot="DeepSpeed has no operator")
FAILED = Result(error="RuntimeError: no")


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
        (IMPOSSIBLE, Result((1.0,)), FAILED, False),
    ],
)
def test_row_is_good_if_numbers_agree_or_if_it_says_why_it_cannot_work(feature, here, there, good):
    assert judge(feature, here, there)[0] is good


def test_rows_are_replaced_in_the_order_of_the_features(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"Before\n\n{page.HEADER}\nAfter\n")
    for feature, result in ((FEATURES[1], "old"), (FEATURES[0], "first"), (FEATURES[1], "a | b")):
        page.update(feature, result, path)
    assert page.listed(path) == [FEATURES[0].name, FEATURES[1].name]
    text = path.read_text()
    assert "| a / b |\n\nAfter\n" in text
    assert "old" not in text


def test_page_lists_all_features_and_their_references_exist():
    names = [each.name for each in FEATURES]
    assert len({*names}) == len(names)
    assert {each.reference for each in FEATURES if each.reference} <= {*names}
    assert page.listed() == names
