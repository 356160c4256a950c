"""Test the simulated card's clock against estimates of the same steps."""

import json
import os
from pathlib import Path

import pytest
from memory_cases import CASES, estimated_seconds, measured_seconds, names

from tools.step_times import card_seconds

# The estimate includes operators that run on the host, and adds the gradients of the first pass.
_DIFFERENT = {"tables", "mlp small batch fused adam"} | {
    name for name, case in CASES.items() if case.accumulating
}
# The host reads a value or a random state, which splits the graph of a pass.
_SPLIT = {"GPT-2", "Mixtral", "Llama inference", "Mixtral inference"} | {
    name for name in CASES if "checkpoint" in name
}
# Takes seconds to compile
MORE = ["unet"] if "HPU_MAGIC_TEST_ALL_ESTIMATES" in os.environ else []
_MEASURE = """
import json, sys
sys.path.insert(0, {folder!r})
from memory_cases import CASES, measured_seconds

print(json.dumps(measured_seconds(CASES[{name!r}], lazy=True)))
"""


@pytest.mark.parametrize("name", [name for name in names(lazy=False) if name not in _DIFFERENT])
def test_card_time_of_an_eager_step_equals_the_estimate(shell, name):
    measured = measured_seconds(CASES[name], lazy=False)
    assert measured == pytest.approx(estimated_seconds(CASES[name], "eager"), rel=0.02)


@pytest.mark.parametrize(
    "name", [name for name in names(lazy=True) if name not in _DIFFERENT | _SPLIT]
)
def test_card_time_of_a_recorded_step_equals_the_estimate(shell, lazy_process, name):
    code = _MEASURE.format(folder=str(Path(__file__).parent), name=name)
    measured = json.loads(lazy_process(code)[-1])
    assert measured == pytest.approx(estimated_seconds(CASES[name], "lazy"), rel=0.02)


@pytest.mark.parametrize(
    "name", ["mlp inference", "cnn inference", "residual inference", "attention causal inference"]
)
def test_card_time_of_compiled_inference_equals_the_estimate(shell, compile_on_hpu, name):
    measured = measured_seconds(CASES[name], lazy=False, wrap=compile_on_hpu)
    assert measured == pytest.approx(estimated_seconds(CASES[name], "compile"), rel=0.02)


@pytest.mark.parametrize("name", ["mlp sgd", "mlp autocast", "residual", "lora", *MORE])
def test_card_time_of_compiled_training_equals_the_estimate(shell, name):
    measured = card_seconds(CASES[name], "compile")
    assert measured == pytest.approx(estimated_seconds(CASES[name], "compile"), rel=0.02)


@pytest.mark.parametrize("name", sorted(_SPLIT & {*names(lazy=True)}))
def test_split_graphs_take_longer_than_the_estimate(shell, lazy_process, name):
    code = _MEASURE.format(folder=str(Path(__file__).parent), name=name)
    measured = json.loads(lazy_process(code)[-1])
    assert 1.01 < measured / estimated_seconds(CASES[name], "lazy") < 1.5
