"""Activates the simulator before a test imports the vendor's modules."""

from hpu_magic.simulator import activate

activate(announce=False)
