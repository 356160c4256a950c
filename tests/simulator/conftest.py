"""Fixture of all tests of the simulator."""

import sys

import pytest

PATCHED = ("gather", "scatter", "take_along_dim")


@pytest.fixture(autouse=True)
def _pytorch_without_patches(monkeypatch):
    """Undo how transformers changes PyTorch as soon as it finds a card, in any earlier test."""
    torch = sys.modules.get("torch")
    if torch is None or "transformers" not in sys.modules:
        return
    for name in PATCHED:
        monkeypatch.setattr(torch, name, getattr(torch._C._VariableFunctions, name))
        if name in vars(torch.Tensor):
            monkeypatch.delattr(torch.Tensor, name)  # the method of the base class remains
    monkeypatch.setattr(torch.linalg, "cholesky", torch._C._linalg.linalg_cholesky)
