"""A training loop with accelerate, accumulated gradients and gathered metrics."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 3))
optimizer = torch.optim.AdamW(model.parameters())
data = DataLoader(TensorDataset(torch.randn(50, 10), torch.randint(0, 3, (50,))), 8)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for inputs, labels in data:
    with accelerator.accumulate(model):
        scores = model(inputs)
        accelerator.backward(nn.functional.cross_entropy(scores, labels))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    best, expected = accelerator.gather_for_metrics((scores.argmax(1), labels))
    print(best.shape, expected.shape)
