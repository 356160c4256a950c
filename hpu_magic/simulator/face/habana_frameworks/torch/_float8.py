"""Largest finite values of the 8-bit floating-point types on the cards."""

import torch

GAUDI2_E4M3FN_MAX = 240.0
E4M3FN_MAX = {"GAUDI": GAUDI2_E4M3FN_MAX, "GAUDI2": GAUDI2_E4M3FN_MAX, "GAUDI3": 448.0}
E5M2_MAX = torch.finfo(torch.float8_e5m2).max
