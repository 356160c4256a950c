"""Distributed processes: the backend ``hccl`` of `torch.distributed`."""
