"""Run a module of a package, with ``hpu`` as PyTorch's default device if it does not choose one.

Usage: python tools/start_program.py DEVICE MODULE [ARGUMENT...]
"""

import importlib.util
import runpy
import sys
from pathlib import Path

import torch

if importlib.util.find_spec("torchvision"):
    runpy.run_path(str(Path(__file__).parents[1] / "tests" / "torchvision_operators.py"))
del sys.argv[0]
device = sys.argv.pop(0)
if device != "cpu":
    torch.set_default_device(device)
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
