"""The simulated device for tests of Hugging Face's libraries."""

import pytest

from hpu_magic.simulator import activate

activate(announce=False)  # libraries detect accelerators when imported


@pytest.fixture(autouse=True)
def _device(shell):
    return shell
