"""Orders to the vendor's graph compiler, its caches and its logs.

The simulator has no such compiler, so there is nothing to dump or to clean: the calls are
accepted and do nothing.
"""

from __future__ import annotations


def clear_dynamic_bucket_recipe_info() -> None:
    """Do nothing: simulated recipes serve one shape each, so there are no buckets of shapes."""


def _disable_bucket_refinement() -> None:
    """Do nothing: there are no buckets of shapes to refine."""


def _flush_disk_cache() -> None:
    """Do nothing: recipes are kept in memory only."""


def _set_dynamic_mode() -> None:
    """Do nothing: simulated recipes serve one shape each."""


def _set_module_name(name: str = "") -> None:
    """Do nothing: compiled graphs are not named after modules."""


def _bridge_cleanup() -> None:
    """Do nothing: the engine cleans up as the process ends."""


def _dump_refined_recipe_stat() -> None:
    """Do nothing: no recipe is refined."""


def _dump_bucket_memory_stat() -> None:
    """Do nothing: there are no buckets of shapes."""


def _dump_history_memory_stat() -> None:
    """Do nothing: no history of shapes is kept."""


def _dump_recipe_memory_stat() -> None:
    """Do nothing: recipes take no memory of the device."""


def _dump_synapse_recipe_memory_stat() -> None:
    """Do nothing: recipes take no memory of the device."""


def _dump_dynamic_shape_memory_stat() -> None:
    """Do nothing: simulated recipes serve one shape each."""


def _dump_memory_reporter() -> None:
    """Do nothing: the allocator has no reporter; see ``torch.hpu.memory_stats``."""


def _towl_configure(flag: bool, config: str = "") -> None:
    """Do nothing: launches of simulated work have no trace of their own."""


def _towl_print(text: str) -> None:
    """Do nothing: launches of simulated work have no trace of their own."""
