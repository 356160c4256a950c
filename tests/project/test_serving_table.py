"""Test the tables of vLLM's features: evaluating and writing rows, and the plugin's rules."""

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from serving_table import page, plugin_rules
from serving_table.__main__ import judge, judged
from serving_table.features import FEATURES, MODELS, Feature, model_features
from serving_table.row import compared

ROW = Feature("A row", "llama")
REFUSED = Feature("Another", "llama", error="not supported")


def result(good):
    return f"RESULT {json.dumps([good, 'some'])}"


@pytest.mark.parametrize(
    ("feature", "output", "good", "sentence"),
    [
        (ROW, result(True), True, "some"),
        (ROW, result(False), False, "some"),
        (ROW, "(Worker pid=1) ValueError: no\nlast line", False, "`ValueError: no`"),
        (ROW, "", False, "`no output`"),
        (REFUSED, result(True), False, "some"),
        (REFUSED, "RuntimeError: it is not supported", True, "`RuntimeError: it is not supported`"),
        (REFUSED, "RuntimeError: another", False, "`RuntimeError: another`"),
    ],
)
def test_row_is_good_if_it_works_or_fails_with_its_known_error(feature, output, good, sentence):
    assert judge(feature, output) == (good, sentence)


def test_error_belongs_to_the_feature_after_the_last_result():
    features = [ROW, ROW, ROW]
    output = f"INFO\n{result(True)}\nValueError: no\n"
    assert judged(features, output) == [(True, "some"), (False, "`ValueError: no`")]
    assert judged(features[:1], output) == [(True, "some")]


def test_tokens_after_the_first_other_one_do_not_count():
    assert compared([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]) == (True, "6 of 6")
    assert compared([[1, 9, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]) == (False, "4 of 6")


def test_page_lists_all_rows():
    for table in page.TABLES:
        assert table.listed() == table.names
    every = [*FEATURES, *(each for name in MODELS for each in model_features(name))]
    assert len({each.name for each in every}) == len(every)


class Config:
    def __init__(self, window, kinds=None):
        self.sliding_window, self.layer_types = window, kinds


def first_keys(mask):
    return [row.tolist().index(0) for row in mask[0, 0]]


def test_window_of_all_layers_applies_only_to_the_prompt():
    mask = plugin_rules.masks(Config(2), 3, 5, 7)
    assert mask.shape == (3, 1, 7, 7)
    assert first_keys(mask) == [0, 0, 0, 1, 2, 0, 0]
    assert torch.equal(mask[0, 0] == 0, torch.tril(mask[0, 0] == 0))
    assert plugin_rules.masks(Config(None), 3, 5, 7) is None


def test_window_of_some_layers_is_read_in_blocks_when_decoding():
    kinds = ["sliding_attention", "full_attention"]
    found = plugin_rules.masks(Config(128, kinds), 1, 200, 202)
    assert first_keys(found["full_attention"]) == [0] * 202
    assert first_keys(found["sliding_attention"])[199:] == [72, 128, 128]


def test_merged_fp8_weights_have_the_largest_scale_and_at_most_240():
    stored = [torch.tensor([448.0, 1.0]), torch.tensor([448.0, 16.0])]
    scales = [torch.tensor(0.25), torch.tensor(1.0)]
    made, common = plugin_rules.requantized([w.to(torch.float8_e4m3fn) for w in stored], scales)
    assert common == 2.0
    assert [each.float().tolist() for each in made] == [[56.0, 0.125], [224.0, 8.0]]


def test_fp8_activations_are_limited_by_their_scale():
    layer = plugin_rules.Fp8Linear(torch.ones(1, 1), torch.tensor(2.0), torch.tensor([0.5]))
    assert layer(torch.tensor([[1000.0], [3.0]])).flatten().tolist() == [240.0, 6.0]
