"""Compiled and replayed operators match direct calls."""

import importlib

import pytest
from in_modes import assert_compiles, assert_replays
from operator_tensors import EAGER, LAZY
from valid_calls import families

ONLY_LAZY = ("test_embedding", "test_sparse_data")
ONLY_EAGER = ("test_adamw", "test_instance_norm")


@EAGER
@pytest.mark.parametrize("family", [name for name in families() if name not in ONLY_LAZY])
def test_compiled_operators_match_eager_mode(family, needs):
    if family == "test_adamw":
        needs("OPTIONAL_LISTS")
    module = importlib.import_module(family)
    assert_compiles(module.everything, module.operands(6), module.operands(7))


@LAZY
@pytest.mark.parametrize("family", [name for name in families() if name not in ONLY_EAGER])
def test_replayed_operators_use_the_current_values_of_their_inputs(family):
    module = importlib.import_module(family)
    assert_replays(module.everything, module.operands(6), module.operands(6, seed=1))
