"""The ``hccl`` backend of `torch.distributed`.

Importing this package registers the backend and reads the launcher's environment variables.
Collectives run over gloo and operate on the memory of the simulated cards.
"""

from habana_frameworks.torch.distributed.hccl._launch import initialize_distributed_hpu
from habana_frameworks.torch.distributed.hccl._registration import register

register()
initialize_distributed_hpu()
