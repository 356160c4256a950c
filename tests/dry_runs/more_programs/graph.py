"""Inference with a captured HPU Graph."""

import habana_frameworks.torch as ht
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv1d(8, 32, 5, padding=2), nn.ReLU(), nn.Conv1d(32, 8, 5, padding=2))
model = ht.hpu.wrap_in_hpu_graph(model.eval().to("hpu"))
with torch.no_grad():
    for _ in range(4):
        print(model(torch.randn(4, 8, 200).to("hpu")).float().cpu().shape)
