"""A radiance field with positional encoding, rendered along rays."""

import torch
from torch import nn

torch.manual_seed(0)
field = nn.Sequential(nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
field.to("hpu")
optimizer = torch.optim.Adam(field.parameters(), fused=False)
frequencies = (2.0 ** torch.arange(6)).to("hpu")
for _ in range(3):
    origins, directions = torch.randn(32, 1, 3).to("hpu"), torch.randn(32, 1, 3).to("hpu")
    depths = torch.linspace(1, 4, 16, device="hpu").view(1, 16, 1)
    points = origins + directions * depths
    angles = (points.unsqueeze(-1) * frequencies).flatten(2)
    values = field(torch.cat([angles.sin(), angles.cos()], dim=-1))
    density = values[..., 3].relu()
    kept = torch.cumprod(1 - (1 - (-density).exp()) + 1e-10, dim=1)
    color = (kept.unsqueeze(-1) * values[..., :3].sigmoid()).sum(1)
    loss = (color - torch.rand(32, 3, device="hpu")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
