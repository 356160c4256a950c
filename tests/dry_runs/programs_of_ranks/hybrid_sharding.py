"""Training with sharding within groups of two cards, and replication across groups (HSDP)."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.manual_seed(0)
dist.init_process_group("hccl")
names = ("replicate", "shard")
mesh = init_device_mesh("hpu", (dist.get_world_size() // 2, 2), mesh_dim_names=names)
model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(4))).to("hpu")
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    loss = model(torch.randn(16, 256).to("hpu")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
print(mesh["shard"].size(), mesh["replicate"].get_local_rank())
dist.destroy_process_group()
