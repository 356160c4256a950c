"""A sample of the random programs; ``make fuzz`` runs more."""

import pytest
import random_programs


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_random_programs_give_the_values_of_the_cpu(first):
    for seed in range(first, first + 20):
        random_programs.test_seed(seed)
