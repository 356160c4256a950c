"""Functions for the vendor's graph compiler, its caches and logs.

They do nothing, because the simulator does not have this compiler.
"""

from __future__ import annotations


def clear_dynamic_bucket_recipe_info() -> None:
    """Do nothing: simulated recipes have fixed shapes, so buckets of shapes do not exist."""


def _disable_bucket_refinement() -> None:
    """Do nothing: buckets of shapes do not exist."""


def _flush_disk_cache() -> None:
    """Do nothing: recipes are only in memory."""


def _set_dynamic_mode() -> None:
    """Do nothing: simulated recipes have fixed shapes."""


def _set_module_name(name: str = "") -> None:
    """Do nothing: compiled graphs do not have the names of modules."""


def _bridge_cleanup() -> None:
    """Do nothing: the engine cleans up when the process ends."""


def _dump_refined_recipe_stat() -> None:
    """Do nothing: recipes are never refined."""


def _dump_bucket_memory_stat() -> None:
    """Do nothing: buckets of shapes do not exist."""


def _dump_history_memory_stat() -> None:
    """Do nothing: the history of shapes is not recorded."""


def _dump_recipe_memory_stat() -> None:
    """Do nothing: recipes use no device memory."""


def _dump_synapse_recipe_memory_stat() -> None:
    """Do nothing: recipes use no device memory."""


def _dump_dynamic_shape_memory_stat() -> None:
    """Do nothing: simulated recipes have fixed shapes."""


def _dump_memory_reporter() -> None:
    """Do nothing: the allocator has no reporter; see ``torch.hpu.memory_stats``."""


def _towl_configure(flag: bool, config: str = "") -> None:
    """Do nothing: launches of simulated work are not traced."""


def _towl_print(text: str) -> None:
    """Do nothing: launches of simulated work are not traced."""
