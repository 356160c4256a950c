"""A variational autoencoder with transposed convolutions."""

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(
    nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 4, 2, 1), nn.ReLU(), nn.Flatten()
)
to_latent = nn.Linear(16 * 7 * 7, 2 * 12)
decoder = nn.Sequential(
    nn.Linear(12, 16 * 7 * 7),
    nn.Unflatten(1, (16, 7, 7)),
    nn.ConvTranspose2d(16, 8, 4, 2, 1),
    nn.ReLU(),
    nn.ConvTranspose2d(8, 1, 4, 2, 1),
)
model = nn.ModuleList([encoder, to_latent, decoder]).to("hpu")
optimizer = torch.optim.Adam(model.parameters(), foreach=True)
for _ in range(3):
    images = torch.rand(8, 1, 28, 28).to("hpu")
    mean, log_variance = to_latent(encoder(images)).chunk(2, dim=1)
    latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
    rebuilt = decoder(latent)
    error = nn.functional.binary_cross_entropy_with_logits(rebuilt, images, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum()
    optimizer.zero_grad()
    (error + divergence).backward()
    optimizer.step()
    print(error.item(), divergence.item())
