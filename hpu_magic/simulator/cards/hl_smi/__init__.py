"""``hl-smi`` for the simulated cards, with the vendor's options and layout."""

from hpu_magic.simulator.cards.hl_smi.offer import BIN, is_offered, is_simulated, offer

__all__ = ["BIN", "is_offered", "is_simulated", "offer"]
