"""Runs CUDA code on the card; import it before all other modules.

Follows the documentation of the vendor's toolkit. It maps calls of ``torch.cuda``, device arguments
and the backends of `torch.distributed` and `torch.compile`. Features that the card does not have do
nothing, return a dummy value or raise an error. The mapping applies until the process ends.
Functions imported from torch earlier (``from torch import zeros``) are not mapped. Devices have the
type ``hpu``, so comparisons of ``device.type`` with ``"cuda"`` are False.

The bridge imports this module with ``PT_HPU_GPU_MIGRATION=1``. ``GPU_MIGRATION_LOG_LEVEL`` logs the
calls that are mapped, modified or without counterpart to ``HABANA_LOGS/gpu_migration_logs``, once
per source line. Level 1 also prints them. Level 3 omits the device arguments of torch's own
functions.
"""

from habana_frameworks.torch.gpu_migration import _cuda, _libraries, _parallel, _tensors

_tensors.install()
_cuda.install()
_libraries.install()
_parallel.install()
