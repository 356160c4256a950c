"""Run CUDA code on the card; import this module before all others.

This module follows the documentation of the vendor's toolkit: it maps ``torch.cuda`` calls, device
arguments, and the backends of `torch.distributed` and `torch.compile`. Calls to features that the
card does not have do nothing, return a dummy value or raise an error. The mapping stays in effect
until the process ends. Functions imported from torch before this module (``from torch import
zeros``) are not mapped. The device type is ``hpu``, so comparing ``device.type`` with ``"cuda"``
yields False.

If ``PT_HPU_GPU_MIGRATION=1`` is set, the bridge imports this module. If ``GPU_MIGRATION_LOG_LEVEL``
is set, calls that are mapped, modified or have no counterpart are logged to
``HABANA_LOGS/gpu_migration_logs``, once per source line. Level 1 also prints them. Level 3 does not
log changes to the device arguments of torch's own functions.
"""

from habana_frameworks.torch.gpu_migration import _cuda, _libraries, _parallel, _tensors

_tensors.install()
_cuda.install()
_libraries.install()
_parallel.install()
