"""Two networks, each with its own optimizer."""

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(
    nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32), nn.Tanh()
)
critic = nn.Sequential(
    nn.utils.spectral_norm(nn.Linear(32, 64)), nn.LeakyReLU(0.2), nn.Linear(64, 1)
)
generator.to("hpu"), critic.to("hpu")
of_generator = torch.optim.Adam(generator.parameters(), betas=(0.5, 0.999))
of_critic = torch.optim.RMSprop(critic.parameters())
for _ in range(4):
    real = torch.rand(24, 32, device="hpu")
    noise = torch.randn(24, 16, device="hpu")
    fake = generator(noise)
    of_critic.zero_grad()
    loss = (
        nn.functional.softplus(-critic(real)).mean()
        + nn.functional.softplus(critic(fake.detach())).mean()
    )
    loss.backward()
    of_critic.step()
    of_generator.zero_grad()
    nn.functional.softplus(-critic(fake)).mean().backward()
    of_generator.step()
    print(loss.cpu().item())
