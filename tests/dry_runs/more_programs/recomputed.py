"""Activation checkpointing of residual blocks."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
blocks = nn.ModuleList(
    nn.Sequential(nn.LayerNorm(96), nn.Linear(96, 384), nn.GELU(), nn.Linear(384, 96))
    for _ in range(4)
).to("hpu")
optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1, momentum=0.9, nesterov=True)
for _ in range(4):
    hidden = torch.randn(8, 50, 96, device="hpu", requires_grad=True)
    for block in blocks:
        hidden = hidden + checkpoint(block, hidden, use_reentrant=False)
    loss = hidden.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
