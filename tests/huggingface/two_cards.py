"""A program with accelerate, for any number of cards."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn


def reset_state():
    """Reset accelerate's state in this process."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def fit(cpu: bool = False) -> dict[str, Any]:
    """Train with batches of eight rows on all cards, and return the results."""
    from accelerate import Accelerator

    torch.manual_seed(0)
    accelerator = Accelerator(cpu=cpu)
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    rows = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.TensorDataset(rows, torch.arange(32) % 2)
    size = 8 if cpu else 8 // accelerator.num_processes
    loader = torch.utils.data.DataLoader(data, batch_size=size)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for inputs, labels in loader:
        accelerator.backward(nn.functional.cross_entropy(model(inputs), labels))
        optimizer.step()
        optimizer.zero_grad()
    accelerator.wait_for_everyone()
    weights = accelerator.get_state_dict(model)
    rank = torch.tensor([accelerator.process_index], device=accelerator.device)
    found = {
        "device": str(accelerator.device),
        "mode": "lazy" if os.environ.get("PT_HPU_LAZY_MODE") == "1" else "eager",
        "kind": accelerator.distributed_type.value,
        "ranks": accelerator.gather(rank).tolist(),
        "weights": {name: each.tolist() for name, each in weights.items()},
    }
    if accelerator.is_main_process and "RESULT" in os.environ:
        Path(os.environ["RESULT"]).write_text(json.dumps(found), encoding="utf-8")
    accelerator.end_training()
    return found


def main():
    """Fit, and write the results to a file."""
    fit()


if __name__ == "__main__":
    main()
