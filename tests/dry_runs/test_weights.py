"""A dry run does not read the weights that a script copies from a file to the card."""

import json
import struct

import pytest
import torch

TENSORS, BYTES = 8, 1 << 29  # of the safetensors file

LOAD = """
import resource
import sys
import torch
from safetensors import safe_open
from safetensors.torch import load_file

def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

sparse, saved = sys.argv[1:]
torch.ones(2).to("hpu")
before = used()
weights = load_file(sparse, device="hpu")
with safe_open(sparse, "pt", device="cpu") as file:
    copies = [file.get_tensor(name).to("hpu") for name in file.keys()]
mapped = torch.load(saved, mmap=True)["w"].to("hpu")
print(used() - before)
"""


def write_sparse_weights(path):
    """Write a safetensors file whose weights use no space on the disk."""
    header = {
        f"w{i}": {
            "dtype": "BF16",
            "shape": [BYTES // 2],
            "data_offsets": [i * BYTES, (i + 1) * BYTES],
        }
        for i in range(TENSORS)
    }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + TENSORS * BYTES)


def test_weights_of_files_use_device_memory_only(dry, tmp_path):
    pytest.importorskip("safetensors")
    sparse, saved = tmp_path / "weights.safetensors", tmp_path / "weights.pt"
    write_sparse_weights(sparse)
    size = 1 << 27
    torch.save({"w": torch.zeros(size, dtype=torch.uint8)}, saved)
    result, output = dry(LOAD, str(sparse), str(saved))
    assert result.error is None
    assert result.peak == 2 * TENSORS * BYTES + size
    assert int(output) < size // 2


def test_rank_0_saves_its_shards(dry, tmp_path):
    result, output = dry(
        """
        import sys, torch
        import torch.distributed as dist
        import torch.distributed.checkpoint as checkpoint
        from torch.distributed.fsdp import fully_shard

        dist.init_process_group("hccl")
        model = torch.nn.Linear(1024, 1024, device="hpu")
        fully_shard(model)
        checkpoint.save(model.state_dict(), checkpoint_id=sys.argv[1])
        dist.destroy_process_group()
        """,
        str(tmp_path / "saved"),
        cards=8,
    )
    assert result.error is None, output
    size = sum(each.stat().st_size for each in (tmp_path / "saved").glob("*.distcp"))
    assert size == pytest.approx(1024 * 1024 * 4 / 8, rel=0.1)
