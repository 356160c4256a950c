"""The vendor's public names and operators, and the simulator's support for each."""

from hpu_magic.simulator.vendor_names.table import Name, Operator, State, names, operators

__all__ = ["Name", "Operator", "State", "names", "operators"]
