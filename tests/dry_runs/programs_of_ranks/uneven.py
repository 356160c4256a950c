"""Data-parallel training with a different number of batches per rank, and a short last batch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.manual_seed(0)
dist.init_process_group("hccl")
rank, size = dist.get_rank(), dist.get_world_size()
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to("hpu")
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
samples = TensorDataset(torch.randn(90 * size, 64), torch.randint(0, 10, (90 * size,)))
loader = DataLoader(samples, 16, sampler=DistributedSampler(samples, shuffle=False))
for epoch in range(2):
    with Join([model]):
        for number, (x, y) in enumerate(loader):
            if rank == size - 1 and number >= 4:
                break  # the last rank has fewer batches
            loss = nn.functional.cross_entropy(model(x.to("hpu")), y.to("hpu"))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(epoch, len(y), loss.item())
dist.destroy_process_group()
