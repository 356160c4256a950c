"""Marks for tests that need an optional package."""

import importlib.util

import pytest

needs_compressor = pytest.mark.skipif(
    importlib.util.find_spec("neural_compressor") is None,
    reason="neural-compressor-pt is not installed; it needs Python 3.11",
)
