"""The estimate's bytes against the simulator's, in eager mode.

``make estimates`` runs all models; otherwise one of each kind runs.
"""

import pytest
from memory_cases import CASES, differences, estimated, measured, names


@pytest.mark.parametrize("name", names(lazy=False))
def test_memory_of_a_step_is_the_simulators(shell, name):
    case = CASES[name]
    assert differences(estimated(case, lazy=False), measured(case, lazy=False)) == {}
