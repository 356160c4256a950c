"""Distributed processes: the ``hccl`` backend of `torch.distributed`."""
