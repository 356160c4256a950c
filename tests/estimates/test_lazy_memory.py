"""Test estimated memory against the simulator's memory use in lazy mode."""

import json
from pathlib import Path

import pytest
from memory_cases import CASES, differences, estimated, names

_MEASURE = """
import json, sys
sys.path.insert(0, {folder!r})
from memory_cases import CASES, measured

print(json.dumps(measured(CASES[{name!r}], lazy=True)))
"""


@pytest.mark.parametrize("name", names(lazy=True))
def test_memory_of_a_recorded_step_matches_the_simulator(shell, lazy_process, name):
    code = _MEASURE.format(folder=str(Path(__file__).parent), name=name)
    true = json.loads(lazy_process(code)[-1])
    assert differences(estimated(CASES[name], lazy=True), true) == {}
