"""Code for CUDA runs unchanged on the card."""

from __future__ import annotations

import json

import pytest

MODES = pytest.mark.parametrize("lazy", ["0", "1"], ids=["eager", "lazy"])
# Like the scripts in many repositories, it supports only CUDA.
TRAINING = """
import copy, io, os, sys, tempfile
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.cuda.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

assert torch.cuda.is_available()
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
torch.backends.cudnn.benchmark = True
torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
    torch.cuda.set_device(0)
    inputs = torch.randn(32, 8)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), 8, pin_memory=True)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
    model = DDP(model, device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = GradScaler()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    losses = []
    for epoch in range(6):
        total = torch.zeros((), device=device)
        for x, y in loader:
            x, y = x.cuda(non_blocking=True), y.to(device, non_blocking=True)
            assert x.is_cuda and x.device == device
            optimizer.zero_grad(set_to_none=True)
            with autocast():
                loss = F.mse_loss(model(x).float(), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            scaler.step(optimizer)
            scaler.update()
            total += loss.detach()
        torch.cuda.empty_cache()
        dist.all_reduce(total)
        losses.append(total.item() / len(loader))
    end.record()
    torch.cuda.synchronize()
    checkpoint = os.path.join(folder, "checkpoint.pt")
    torch.save(model.module.state_dict(), checkpoint)
    again = copy.deepcopy(model.module).cpu()
    again.load_state_dict(torch.load(checkpoint, map_location="cuda:0"))
    backend = dist.get_backend()
    dist.barrier(device_ids=[torch.cuda.current_device()])
    dist.destroy_process_group()
"""


@MODES
def test_training_script_for_cuda_runs_unchanged(forked_script, lazy):
    report = """
import json
by_hand = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to("hpu")
by_hand.load_state_dict(again.state_dict())
print(json.dumps({
    "learns": losses[-1] < 0.5 * losses[0] and all(map(torch.isfinite, torch.tensor(losses))),
    "falls": sorted(losses, reverse=True) == losses,
    "backend": backend,
    "scale": scaler.get_scale(),
    "time": start.elapsed_time(end) > 0,
    "devices": sorted({str(each.device) for each in model.parameters()}),
    "same": torch.equal(model.module(inputs.cuda()), again.cuda()(inputs.cuda())),
    "memory": torch.cuda.max_memory_allocated() == torch.hpu.max_memory_allocated() > 0,
}))
"""
    printed = forked_script(
        TRAINING + report, simulated=True, PT_HPU_GPU_MIGRATION="1", PT_HPU_LAZY_MODE=lazy
    )
    assert json.loads(printed.splitlines()[-1]) == {
        "learns": True,
        "falls": True,
        "backend": "nccl",
        "scale": 65536.0,
        "time": True,
        "devices": ["hpu:0"],
        "same": True,
        "memory": True,
    }


@MODES
def test_all_device_arguments_are_mapped_to_the_card(migrated, lazy, needs):
    needs("GENERATORS")
    found = migrated(
        """
        import io
        x = torch.ones(2, device="cuda")
        devices = [torch.device("cuda"), torch.device("cuda:3"), torch.device("cuda", 1)]
        tensors = {
            "zeros": torch.zeros(2, device="cuda:1"),
            "object": torch.zeros(2, device=devices[1]),
            "number": torch.zeros(2, device=2),
            "like": torch.rand_like(torch.ones(2), device="cuda"),
            "tensor": torch.tensor([1.0], device="cuda"),
            "as_tensor": torch.as_tensor([1.0], device="cuda"),
            "fft": torch.fft.fftfreq(4, device="cuda"),
            "window": torch.hann_window(4, device="cuda"),
            "cuda": torch.ones(2).cuda(),
            "cuda of a number": torch.ones(2).cuda(1, non_blocking=True),
            "to": torch.ones(2).to("cuda:2"),
            "to a number": torch.ones(2).to(1, torch.float16),
            "to by name": torch.ones(2).to(device=devices[2]),
            "type": torch.ones(2).type(torch.cuda.HalfTensor),
            "type by name": torch.ones(2).type("torch.cuda.HalfTensor"),
            "typed": torch.cuda.FloatTensor([1.0]),
            "new": x.new_zeros(2, device="cuda"),
            "module": torch.nn.Linear(2, 2, device="cuda").weight,
            "module to": torch.nn.Linear(2, 2).to("cuda:1", torch.float64).weight,
            "module cuda": torch.nn.Linear(2, 2).cuda(3).weight,
            "empty module": torch.nn.Linear(2, 2, device="meta").to_empty(device="cuda").weight,
            "packed": torch.nn.utils.rnn.pack_sequence([torch.ones(2)]).cuda().data,
            "random": torch.randn(2, generator=torch.Generator("cuda"), device="cuda"),
        }
        with torch.device("cuda"):
            tensors["context"] = torch.ones(2)
        torch.set_default_device("cuda")
        tensors["default"] = torch.ones(2)
        torch.set_default_device("cpu")
        print(json.dumps({
            "elsewhere": {n: str(t.device) for n, t in tensors.items() if t.device.type != "hpu"},
            "not cuda": [name for name, tensor in tensors.items() if not tensor.is_cuda],
            "devices": list(map(str, devices)),
            "equal": devices[1] == x.device,
            "half": [str(tensors[name].dtype) for name in ("type", "type by name")],
            "known": isinstance(x, torch.cuda.FloatTensor) and x.type() == "torch.hpu.FloatTensor",
            "cpu": [str(torch.ones(1).device), torch.ones(1).is_cuda, str(torch.device("cpu"))],
            "meta": str(torch.ones(2, device="meta").device),
        }))
        """,
        lazy,
    )
    assert found == {
        "elsewhere": {},
        "not cuda": [],
        "devices": ["hpu", "hpu:0", "hpu:0"],
        "equal": True,
        "half": ["torch.float16"] * 2,
        "known": True,
        "cpu": ["cpu", False, "cpu"],
        "meta": "meta",
    }


def test_table_contains_all_public_names_of_torch_cuda(forked_script):
    printed = forked_script(
        """
        import importlib, json, pkgutil, types
        import torch, torch.cuda.comm

        def public(module):
            names = getattr(module, "__all__", None)
            for name in dir(module) if names is None or module is torch.cuda else names:
                value = getattr(module, name)
                owner = str(getattr(value, "__module__", ""))
                known = owner.startswith(("torch", "_C")) or name.startswith("has_")
                if not name.startswith("_") and known and not isinstance(value, types.ModuleType):
                    yield name

        wanted = set(public(torch.cuda))
        for part in ("amp", "comm", "gds", "nvtx", "profiler", "tunable", "nccl", "sparse"):
            module = importlib.import_module(f"torch.cuda.{part}")
            wanted |= {f"{part}.{name}" for name in public(module)}
        before = {}
        for name in wanted:
            value = torch.cuda
            for each in name.split("."):
                value = getattr(value, each)
            before[name] = value

        import habana_frameworks.torch.gpu_migration
        from hpu_magic.torch_cuda import names

        table = {row.name: row for row in names()}
        unchanged = []
        for name, original in before.items():
            value = torch.cuda
            for each in name.split("."):
                value = getattr(value, each)
            if value is original and name in table:
                unchanged.append(name)
        kept = [n for n, e in table.items() if e.counterpart == "as it is"]
        print(json.dumps({
            "missing": sorted(wanted - set(table)),
            "kinds": sorted({row.category for row in table.values()}),
            "wrongly unchanged": sorted(set(unchanged) - set(kept)),
            "without a reason": sorted(
                n for n, e in table.items() if e.category != "hpu_match" and not e.why
            ),
            "count": len(wanted) > 120,
        }))
        """,
        simulated=True,
    )
    assert json.loads(printed.splitlines()[-1]) == {
        "missing": [],
        "kinds": ["hpu_match", "hpu_mismatch", "hpu_modified"],
        "wrongly unchanged": ["OutOfMemoryError"],  # PyTorch has one for every device
        "without a reason": [],
        "count": True,
    }


@MODES
def test_functions_of_torch_cuda_use_the_card(migrated, lazy):
    found = migrated(
        """
        x = torch.ones(256, device="cuda")
        torch.cuda.synchronize()
        stats, own = torch.cuda.memory_stats(), torch.hpu.memory_stats()
        nested, allocated = torch.cuda.memory_stats_as_nested_dict(), torch.cuda.memory_allocated()
        properties = torch.cuda.get_device_properties("cuda:0")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.cuda.device(3):
            y = x + 1
            inside = torch.cuda.current_stream() == stream
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.manual_seed(7)
        state = torch.cuda.get_rng_state("cuda:1")
        first = torch.rand(3, device="cuda").tolist()
        torch.cuda.set_rng_state(state)
        print(json.dumps({
            "count": [torch.cuda.device_count(), torch.cuda.current_device()],
            "name": torch.cuda.get_device_name(0),
            "capability": torch.cuda.get_device_capability() == (properties.major, properties.minor)
            == (1, 24),
            "properties": [
                properties.name, properties.total_memory, properties.multi_processor_count
            ],
            "stats": [
                stats["allocated_bytes.all.current"] == own["InUse"],
                own["InUse"] == allocated,
                stats["allocated_bytes.all.peak"] == own["MaxInUse"],
                nested["active_bytes"]["all"]["peak"] == own["MaxInUse"],
                {key: stats[key] for key in own} == own,
            ],
            "reserved": torch.cuda.memory_reserved() == torch.cuda.mem_get_info()[1],
            "streams": [inside, isinstance(stream, torch.cuda.Stream), y.sum().item()],
            "random": torch.rand(3, device="cuda").tolist() == first,
            "bf16": torch.cuda.is_bf16_supported(),
        }))
        """,
        lazy,
    )
    assert found == {
        "count": [8, 0],
        "name": "GAUDI2",
        "capability": True,
        "properties": ["GAUDI2", 96 << 30, 24],
        "stats": [True, True, True, True, True],
        "reserved": True,
        "streams": [True, True, 512.0],
        "random": True,
        "bf16": True,
    }


def test_names_without_counterpart_do_nothing_or_return_a_dummy_or_fail(migrated):
    assert migrated(
        """
        def result_or_error(function, *arguments):
            try:
                return function(*arguments)
            except RuntimeError as raised:
                return str(raised)

        with torch.cuda.nvtx.range("step"):
            depth = torch.cuda.nvtx.range_push("inner")
        values = torch.cuda.memory_snapshot()
        values.append("changed by its reader")
        print(json.dumps([
            torch.cuda.empty_cache(), depth, torch.cuda.memory_snapshot(),
            list(torch.cuda.graph_pool_handle()), result_or_error(torch.cuda.cudart),
            result_or_error(torch.cuda.temperature), result_or_error(torch.cuda.MemPool),
        ]))
        """
    ) == [
        None,
        0,
        [],
        [0, 0],
        "torch.cuda.cudart has no counterpart on the card. It belongs to CUDA's libraries.",
        "torch.cuda.temperature has no counterpart on the card. hl-smi and pyhlml report it.",
        "torch.cuda.MemPool has no counterpart on the card. "
        "The card's allocator cannot be configured or replaced.",
    ]


@MODES
def test_mixed_precision_uses_the_cards_type_by_default(migrated, lazy):
    assert migrated(
        """
        linear, x = torch.nn.Linear(4, 4).cuda(), torch.ones(2, 4).cuda()
        types = []
        for context in (
            torch.cuda.amp.autocast(),
            torch.cuda.amp.autocast(dtype=torch.float16),
            torch.cuda.amp.autocast(enabled=False),
            torch.autocast("cuda"),
            torch.autocast("cuda", dtype=torch.float16),
            torch.amp.autocast(device_type=x.device.type),
        ):
            with context:
                types.append(str(linear(x).dtype).removeprefix("torch."))
        torch.set_autocast_gpu_dtype(torch.float16)
        types.append(str(torch.get_autocast_dtype("cuda")))

        @torch.autocast("cuda")
        def decorated():
            return str(linear(x).dtype)

        class Double(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
            def forward(ctx, x):
                return 2 * x

            @staticmethod
            @torch.amp.custom_bwd(device_type="cuda")
            def backward(ctx, grad):
                return 2 * grad

        with torch.autocast("cuda"):
            types.append(str(Double.apply(x.bfloat16()).dtype))
        scalers = torch.cuda.amp.GradScaler(), torch.amp.GradScaler("cuda"), torch.amp.GradScaler()
        types += [str(each.scale(torch.ones((), device="cuda")).device) for each in scalers]
        print(json.dumps([*types, decorated()]))
        """,
        lazy,
    ) == [
        "bfloat16",
        "float16",
        "float32",
        "bfloat16",
        "float16",
        "bfloat16",
        "torch.float16",
        "torch.float32",
        *["hpu:0"] * 3,
        "torch.float16",
    ]


def test_checkpoints_of_gpus_load_on_the_card(migrated):
    assert migrated(
        """
        import io
        from unittest import mock

        file = io.BytesIO()
        with mock.patch("torch.serialization.location_tag", lambda storage: "cuda:1"):
            torch.save(torch.arange(3.0), file)  # like a process with two GPUs

        def loaded(*arguments, **options):
            file.seek(0)
            tensor = torch.load(file, *arguments, **options)
            return [str(tensor.device), tensor.tolist() == [0, 1, 2]]

        print(json.dumps([
            loaded(),
            loaded("cuda:0"),
            loaded(map_location=torch.device("cuda")),
            loaded(map_location={"cuda:1": "cuda:0"}),
            loaded({"cuda:1": "cuda:0"}),
            loaded(map_location=lambda storage, place: storage.cuda(0)),
            loaded(map_location="cpu"),
        ]))
        """
    ) == [*[["hpu:0", True]] * 6, ["cpu", True]]


def test_replaced_types_are_still_types(migrated, needs):
    needs("GENERATORS")
    assert migrated(
        """
        import copy, pickle
        cuda = torch.device("cuda")

        class Mine(torch.cuda.Stream):
            pass

        print(json.dumps([
            isinstance(cuda, torch.device),
            isinstance("cuda", torch.device),
            type(cuda) == torch.device and torch.device in {type(cuda)},
            pickle.loads(pickle.dumps(cuda)) == copy.deepcopy(cuda) == cuda,
            isinstance(None, torch.device | None),
            isinstance(Mine(), torch.cuda.Stream) and issubclass(Mine, torch.Stream),
            isinstance(torch.Generator(device="cuda"), torch.Generator),
            isinstance(torch.cuda.amp.GradScaler(), torch.cuda.amp.GradScaler),
            isinstance(torch.cuda.amp.autocast(), torch.cuda.amp.autocast),
        ]))
        """
    ) == [True, False, True, True, True, True, True, True, True]


def test_migration_applies_to_threads_and_acquires_no_card(migrated):
    assert migrated(
        """
        from concurrent.futures import ThreadPoolExecutor

        taken = [torch.hpu.is_initialized(), torch.cuda.is_available(), torch.hpu.is_initialized()]
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda size: str(torch.ones(size, device="cuda").device), (1, 2)))
        print(json.dumps([taken, found]))
        """
    ) == [[False, True, False], ["hpu:0", "hpu:0"]]


def test_data_parallel_uses_the_only_card(migrated):
    assert migrated(
        """
        model = torch.nn.Linear(3, 2)
        parallel, x = torch.nn.DataParallel(model, device_ids=[0, 1]).cuda(), torch.ones(4, 3)
        same = torch.equal(parallel(x), model(x.cuda()))
        parallel(x).sum().backward()
        print(json.dumps([same, str(model.weight.grad.device), parallel.device_ids]))
        """
    ) == [True, "hpu:0", [0]]
