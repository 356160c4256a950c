"""Functions for debugging CPU fallbacks, compiled graphs and device memory."""

from habana_frameworks.torch.utils.debug._bridge import (
    _clear_jit_cache,
    _get_eager_compiler_unsupported_op_prefixes,
    _get_fallback_op_count,
    _get_jit_cache_size,
    _get_shape_agnostic_unsupported_ops,
    _hb_print,
    _hg_print,
    _is_enabled_lazy_collectives,
    _is_enabled_synapse_layout_handling,
    _is_enabled_weight_permute_pass,
    _mem_log,
    get_tensor_info,
)
from habana_frameworks.torch.utils.debug._compiler_statistics import (
    _bridge_cleanup,
    _disable_bucket_refinement,
    _dump_bucket_memory_stat,
    _dump_dynamic_shape_memory_stat,
    _dump_history_memory_stat,
    _dump_memory_reporter,
    _dump_recipe_memory_stat,
    _dump_refined_recipe_stat,
    _dump_synapse_recipe_memory_stat,
    _flush_disk_cache,
    _set_dynamic_mode,
    _set_module_name,
    _towl_configure,
    _towl_print,
    clear_dynamic_bucket_recipe_info,
)
from habana_frameworks.torch.utils.debug._memory_log import (
    _memstat_devmem_start_collect,
    _memstat_devmem_stop_collect,
    _memstat_livealloc,
)
from habana_frameworks.torch.utils.debug.cprofile_wrapper import cprofile
from habana_frameworks.torch.utils.debug.logger import Logger, enable_logging
from habana_frameworks.torch.utils.debug.utils import dump_device_state_and_terminate
