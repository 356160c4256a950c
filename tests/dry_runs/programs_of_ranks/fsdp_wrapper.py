"""Training with sharded parameters (FSDP1), in mixed precision and with a full checkpoint."""

import functools
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    StateDictType,
)
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

torch.manual_seed(0)
dist.init_process_group("hccl")
model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(4)))
model = FullyShardedDataParallel(
    model,
    auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=50_000),
    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    device_id=torch.device("hpu", torch.hpu.current_device()),
)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    loss = model(torch.randn(16, 256).to("hpu")).float().square().mean()
    loss.backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
settings = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, settings):
    state = model.state_dict()
if dist.get_rank() == 0:
    with tempfile.TemporaryDirectory() as folder:
        torch.save(state, Path(folder) / "model.pt")
dist.destroy_process_group()
