"""A shared encoder for anchor, positive and negative images."""

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(
    nn.Conv2d(3, 12, 3, stride=2),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(12, 16),
).to("hpu")
optimizer = torch.optim.Adadelta(encoder.parameters())
for _ in range(3):
    images = torch.rand(3, 6, 3, 32, 32).to("hpu")
    anchor, positive, negative = (nn.functional.normalize(encoder(each), dim=1) for each in images)
    loss = nn.functional.triplet_margin_loss(anchor, positive, negative)
    loss = loss + nn.functional.cosine_similarity(anchor, negative).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
