"""Training in bfloat16 with autocast, and an evaluation after each epoch."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(40, 80), nn.BatchNorm1d(80), nn.ReLU(), nn.Linear(80, 4)).to("hpu")
optimizer = torch.optim.NAdam(model.parameters())
inputs, labels = torch.randn(128, 40), torch.randint(0, 4, (128,))
for _ in range(3):
    model.train()
    for batch, target in zip(inputs.split(32), labels.split(32), strict=True):
        with torch.autocast("hpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(batch.to("hpu")), target.to("hpu"))
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad(), torch.autocast("hpu", dtype=torch.bfloat16):
        correct = (model(inputs.to("hpu")).argmax(1) == labels.to("hpu")).sum()
    print(loss.item(), correct.item())
