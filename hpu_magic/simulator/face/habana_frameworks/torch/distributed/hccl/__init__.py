"""The backend ``hccl`` of `torch.distributed`; importing it registers it and reads the launcher.

The simulator's serves groups of one process. Larger ones are refused with a sentence.
"""

from ._launch import initialize_distributed_hpu
from ._one_process import register

__all__ = ["initialize_distributed_hpu"]

register()
initialize_distributed_hpu()
