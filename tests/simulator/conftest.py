"""Fixtures of the device's own tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lazy_process import LazyProcess


@pytest.fixture(scope="module")
def lazy() -> Iterator[LazyProcess]:
    """A bare process in lazy mode, the same one for all tests of a module."""
    process = LazyProcess()
    yield process
    process.close()
