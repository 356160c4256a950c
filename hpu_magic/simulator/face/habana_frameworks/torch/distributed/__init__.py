"""Several processes: the backend ``hccl`` of `torch.distributed`."""
