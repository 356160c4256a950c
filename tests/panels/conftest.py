"""A shell in which fits of some batches can be run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from small_fit import SETUP


@pytest.fixture
def fits(run: Callable[[str], Any]) -> Callable[[str], Any]:
    """Run a cell in a shell that has `trainer`, `model`, `data`, `Model`, `make_trainer`."""
    assert run(SETUP).error is None
    return run
