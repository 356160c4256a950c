"""Distributed training with the ``hccl`` backend of `torch.distributed`."""
