"""Test estimated memory against the simulator's memory use in eager mode."""

import pytest
from memory_cases import CASES, differences, estimated, measured, names


@pytest.mark.parametrize("name", names(lazy=False))
def test_memory_of_a_step_matches_the_simulator(shell, name):
    case = CASES[name]
    assert differences(estimated(case, lazy=False), measured(case, lazy=False)) == {}
