"""Runs CUDA code on the card: ``import habana_frameworks.torch.gpu_migration`` above everything.

What is documented of the vendor's toolkit: calls of ``torch.cuda``, device arguments and the
backends of `torch.distributed` and `torch.compile` are mapped; what the card has not is inactive,
a dummy value or an exception. It holds for the whole process and is not undone. Names that were
imported from torch before, as in ``from torch import zeros``, stay as they were, and devices are
of the type ``hpu``: what compares ``device.type`` with ``"cuda"`` goes the other way.

``PT_HPU_GPU_MIGRATION=1`` imports it with the bridge. ``GPU_MIGRATION_LOG_LEVEL`` writes what was
mapped, changed or has no counterpart, each line of the script once, to
``HABANA_LOGS/gpu_migration_logs``: 1 also prints it, 3 leaves out the device arguments of torch's
own functions.
"""

from habana_frameworks.torch.gpu_migration import _cuda, _libraries, _parallel, _tensors

_tensors.install()
_cuda.install()
_libraries.install()
_parallel.install()
