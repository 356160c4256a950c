"""Tensor parallelism with sharded sequences, and products of DTensors."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class Block(nn.Module):
    """A transformer block without attention."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up = nn.Linear(64, 256)
        self.down = nn.Linear(256, 64)

    def forward(self, x):
        """Return the input plus the output of the two layers."""
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


torch.manual_seed(0)
dist.init_process_group("hccl")
mesh = init_device_mesh("hpu", (dist.get_world_size(),))
model = nn.Sequential(nn.Embedding(512, 64), Block(), Block(), nn.Linear(64, 512)).to("hpu")
sharded = {"output_layouts": Shard(1), "use_local_output": False}
plan = {"0": RowwiseParallel(input_layouts=Replicate(), **sharded)}
for block in "12":
    plan |= {
        f"{block}.norm": SequenceParallel(),
        f"{block}.up": ColwiseParallel(input_layouts=Shard(1)),
        f"{block}.down": RowwiseParallel(**sharded),
    }
plan["3"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
parallelize_module(model, mesh, plan)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    tokens = torch.randint(0, 512, (4, 33)).to("hpu")
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
table = distribute_tensor(torch.randn(128, 32), mesh, [Shard(0)])
total = (table @ table.T).sum().full_tensor()
print(table.to_local().shape, table.redistribute(mesh, [Shard(1)]).to_local().shape, total.item())
dist.destroy_process_group()
