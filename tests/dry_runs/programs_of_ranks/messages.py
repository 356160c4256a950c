"""A pipeline without microbatches, which sends sizes, activations and gradients."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("hccl")
rank, size = dist.get_rank(), dist.get_world_size()
is_first, is_last = rank == 0, rank == size - 1
stage = nn.Sequential(*(nn.Linear(128, 128) for _ in range(2 + rank))).to("hpu")
optimizer = torch.optim.AdamW(stage.parameters())
for step in range(4):
    if is_first:
        x = torch.randn(16 + step, 128).to("hpu")
    else:
        rows = torch.zeros(1, dtype=torch.long, device="hpu")
        dist.recv(rows, rank - 1)
        x = torch.empty(int(rows), 128, device="hpu")
        dist.recv(x, rank - 1)
        x.requires_grad_()
    y = stage(x)
    if is_last:
        y.square().mean().backward()
    else:
        dist.send(torch.tensor([len(y)], device="hpu"), rank + 1)
        gradient = torch.empty_like(y)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, y.detach(), rank + 1),
                dist.P2POp(dist.irecv, gradient, rank + 1),
            ]
        )
        for work in works:
            work.wait()
        y.backward(gradient)
    if not is_first:
        dist.send(x.grad, rank - 1)
    optimizer.step()
    optimizer.zero_grad()
