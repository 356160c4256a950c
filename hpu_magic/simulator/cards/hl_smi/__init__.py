"""``hl-smi`` of the simulated cards: the vendor's options and layout, and no invented figures."""

from hpu_magic.simulator.cards.hl_smi.offer import BIN, is_offered, is_simulated, offer

__all__ = ["BIN", "is_offered", "is_simulated", "offer"]
