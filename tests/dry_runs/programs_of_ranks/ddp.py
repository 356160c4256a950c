"""Data-parallel training with DistributedDataParallel and SyncBatchNorm."""

import os

import torch
import torch.distributed as dist
from torch import nn

torch.manual_seed(0)
dist.init_process_group("hccl")
rank, size = dist.get_rank(), dist.get_world_size()
model = nn.Sequential(nn.Linear(256, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 10))
model = nn.SyncBatchNorm.convert_sync_batchnorm(model).to("hpu")
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    x, y = torch.randn(16, 256).to("hpu"), torch.randint(0, 10, (16,)).to("hpu")
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    count = torch.tensor(len(y), device="hpu")
    dist.all_reduce(count)
    if rank == 0:
        print(mean.item() / size, count.item(), os.environ["WORLD_SIZE"])
names = [None] * size
dist.all_gather_object(names, f"rank {rank}")
dist.barrier()
print("end", len(names), size)
dist.destroy_process_group()
