"""Training in a pipeline with the schedules of `torch.distributed.pipelining`."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

torch.manual_seed(0)
dist.init_process_group("hccl")
rank, size = dist.get_rank(), dist.get_world_size()
for schedule in (ScheduleGPipe, Schedule1F1B):
    layers = [nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(2 + rank)]
    module = nn.Sequential(*layers).to("hpu")
    stage = PipelineStage(module, rank, size, torch.device("hpu"))
    pipeline = schedule(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(module.parameters())
    for _ in range(3):
        losses = []
        x, y = torch.randn(32, 256).to("hpu"), torch.randn(32, 256).to("hpu")
        if rank == 0:
            pipeline.step(x)
        elif rank == size - 1:
            pipeline.step(target=y, losses=losses)
        else:
            pipeline.step()
        optimizer.step()
        optimizer.zero_grad()
    del module, stage, pipeline, optimizer, layers
