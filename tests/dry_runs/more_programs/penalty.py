"""A Wasserstein critic whose loss contains the norm of its gradient."""

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
critic.to("hpu")
optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
for _ in range(3):
    real, fake = torch.randn(16, 20, device="hpu"), torch.rand(16, 20, device="hpu")
    share = torch.rand(16, 1, device="hpu")
    between = (share * real + (1 - share) * fake).requires_grad_()
    (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = (gradient.norm(2, dim=1) - 1).pow(2).mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), penalty.item())
