"""Possible values of an estimate's arguments, defined without importing torch."""

from __future__ import annotations

MODES = ("eager", "lazy", "graphs", "compile")
DTYPES = ("fp32", "bf16", "bf16-mixed", "fp8")
