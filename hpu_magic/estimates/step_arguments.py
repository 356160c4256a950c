"""Valid values of an estimate's arguments; this module does not import torch."""

from __future__ import annotations

MODES = ("eager", "lazy", "graphs", "compile")
DTYPES = ("fp32", "bf16", "bf16-mixed", "fp8")
ATTENTIONS = ("torch", "fused")
