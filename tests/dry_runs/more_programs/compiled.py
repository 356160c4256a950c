"""A compiled model that is recompiled for another batch size."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(48, 96), nn.SiLU(), nn.Dropout(0.1), nn.Linear(96, 48)).to("hpu")
compiled = torch.compile(model, backend="hpu_backend", dynamic=False)
optimizer = torch.optim.Adam(model.parameters())
for batch in (16, 16, 24, 24):
    data = torch.randn(batch, 48).to("hpu")
    loss = nn.functional.l1_loss(compiled(data), data)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
