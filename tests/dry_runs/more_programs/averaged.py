"""An exponential moving average of the weights, and a checkpoint that is saved and loaded."""

import copy
import io

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(24, 48), nn.ELU(), nn.Linear(48, 24)).to("hpu")
averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(4):
    data = torch.randn(16, 24, device="hpu")
    loss = (model(data) - data).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    averaged.update_parameters(model)
    print(loss.item())
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
saved = torch.load(file, map_location="hpu", weights_only=True)
resumed = copy.deepcopy(model)
resumed.load_state_dict(saved["model"])
again = torch.optim.SGD(resumed.parameters(), lr=0.05, momentum=0.9)
again.load_state_dict(saved["optimizer"])
resumed(torch.randn(16, 24, device="hpu")).sum().backward()
again.step()
