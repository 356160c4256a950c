"""The simulated device for tests of estimates."""

import pytest


@pytest.fixture(autouse=True)
def _device(shell):
    """The device of fake tensors."""
