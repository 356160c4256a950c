"""A sample of the random programs; ``make fuzz`` runs as many as wanted."""

import pytest
import random_programs


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_programs_of_views_writes_and_resizes_give_the_cpus_values(first):
    for seed in range(first, first + 20):
        random_programs.test_seed(seed)
