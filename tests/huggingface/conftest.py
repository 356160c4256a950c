"""The simulated device for tests of Hugging Face's libraries."""

import pytest

from hpu_magic.simulator import activate

activate(announce=False)  # before a library detects PyTorch's accelerators


@pytest.fixture(autouse=True)
def _device(shell):
    return shell
