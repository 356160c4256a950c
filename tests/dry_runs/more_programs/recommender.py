"""Matrix factorization of ratings, with two learning rates."""

import torch
from torch import nn

torch.manual_seed(0)
users, items = nn.Embedding(1000, 16).to("hpu"), nn.Embedding(500, 16).to("hpu")
bias = nn.Parameter(torch.zeros(1, device="hpu"))
groups = [{"params": users.parameters()}, {"params": items.parameters(), "lr": 0.1}]
optimizer = torch.optim.Adagrad([*groups, {"params": [bias]}], lr=0.05)
for _ in range(4):
    user, item = torch.randint(0, 1000, (64,)).to("hpu"), torch.randint(0, 500, (64,)).to("hpu")
    ratings = torch.randint(1, 6, (64,)).float().to("hpu")
    predicted = (users(user) * items(item)).sum(1) + bias
    loss = (predicted - ratings).square().mean() + 0.01 * users(user).norm()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
