"""The backend ``hccl`` of `torch.distributed`; importing it registers it and reads the launcher.

The simulator's collectives are gloo's, on the memory of the simulated cards.
"""

from habana_frameworks.torch.distributed.hccl._launch import initialize_distributed_hpu
from habana_frameworks.torch.distributed.hccl._registration import register

__all__ = ["initialize_distributed_hpu"]

register()
initialize_distributed_hpu()
