"""Gradient accumulation with clipping and a learning rate schedule."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10)).to(
    "hpu"
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
for step in range(12):
    inputs, labels = torch.randn(32, 64).to("hpu"), torch.randint(0, 10, (32,)).to("hpu")
    loss = nn.functional.cross_entropy(model(inputs), labels, label_smoothing=0.1) / 2
    loss.backward()
    if step % 2:
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        print(loss.item(), norm.item(), schedule.get_last_lr())
