"""A plain loop with AdamW, clipped gradients, and values that the host reads."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 10))
model.to("hpu")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
total = torch.zeros(1, device="hpu")
for _ in range(4):
    x, y = torch.randn(64, 256).to("hpu"), torch.randint(0, 10, (64,)).to("hpu")
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    if torch.isnan(loss).any() or not torch.isfinite(loss):
        raise SystemExit("The loss is not finite.")
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    total += loss.detach()
    print(loss.item(), (out.argmax(-1) == y).sum().item(), int((y >= 0).sum()))
