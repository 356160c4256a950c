"""Test a sample of the random programs, also compiled.

``make fuzz`` runs more programs, and ``make compiled-operators`` compiles more.
"""

import os

import pytest
import random_programs
import torch
from habana_frameworks.torch.utils.internal import is_lazy
from program_steps import COMPILABLE

COMPILED = 100 if "HPU_MAGIC_TEST_ALL_OPERATORS" in os.environ else 15


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_random_programs_give_the_values_of_the_cpu(first):
    for seed in range(first, first + 20):
        random_programs.test_seed(seed)


@pytest.mark.skipif(is_lazy(), reason="hpu_backend needs eager mode")
@pytest.mark.filterwarnings("ignore")
def test_compiled_programs_give_the_values_of_the_cpu():
    torch._dynamo.utils.counters.clear()
    for seed in range(COMPILED):
        torch._dynamo.reset()
        with random_programs.all_bits():
            random_programs.run_compiled(random_programs.make(seed, COMPILABLE))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > COMPILED
