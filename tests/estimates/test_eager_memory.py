"""Estimated bytes compared with the simulator's in eager mode.

``make estimates`` tests all models; by default, one of each kind is tested.
"""

import pytest
from memory_cases import CASES, differences, estimated, measured, names


@pytest.mark.parametrize("name", names(lazy=False))
def test_memory_of_a_step_equals_the_simulators(shell, name):
    case = CASES[name]
    assert differences(estimated(case, lazy=False), measured(case, lazy=False)) == {}
