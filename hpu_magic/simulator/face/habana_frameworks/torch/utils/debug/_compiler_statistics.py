"""Functions that configure the vendor's graph compiler, its caches and its logs.

The functions do nothing, because the simulator does not use this compiler. Simulated recipes have
static shapes, are only stored in host memory, and are never refined.
"""

from __future__ import annotations


def _do_nothing() -> None: ...


clear_dynamic_bucket_recipe_info = _disable_bucket_refinement = _do_nothing
_flush_disk_cache = _set_dynamic_mode = _bridge_cleanup = _do_nothing
_dump_refined_recipe_stat = _dump_recipe_memory_stat = _do_nothing
_dump_bucket_memory_stat = _dump_history_memory_stat = _dump_synapse_recipe_memory_stat = (
    _do_nothing
)
_dump_dynamic_shape_memory_stat = _dump_memory_reporter = _do_nothing


def _set_module_name(name: str = "") -> None:
    """Do nothing, because compiled graphs have no module names."""


def _towl_configure(flag: bool, config: str = "") -> None:
    """Do nothing, because the simulator does not trace launches."""


def _towl_print(text: str) -> None:
    """Do nothing, because the simulator does not trace launches."""
