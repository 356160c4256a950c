"""Test GPU migration with compilers, function modes, pickle and graphs."""

from __future__ import annotations

import json

from torch_functions import SEEN

FUNCTIONS = """
import json
import torch
from torch import nn

linear, x = nn.Linear(3, 3).cuda(), torch.ones(3).cuda()


def devices(x):
    ones = torch.ones(3, device="cuda")
    return x.cuda() + ones + torch.zeros(3, device=torch.device("cuda"))


def question(x):
    return 2 * x if torch.cuda.is_available() and x.is_cuda else x


def precision(x):
    with torch.autocast("cuda"):
        return linear(x)


def older_precision(x):
    with torch.cuda.amp.autocast():
        return linear(x)


def methods(x):
    return torch.zeros_like(x, device="cuda") + x.to("cuda:0") + x.new_ones(3)


def typed(x):
    return x.type(torch.cuda.HalfTensor)


def default(x):
    return torch.ones(3) + x


@torch.jit.script
def scripted(x, device: torch.device):
    return x.to(device) + torch.ones(3, device=device)


@torch.library.custom_op("gpu_migration_test::doubled", mutates_args=())
def doubled(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    return 2 * x.to(device)


found = {}
for function in (devices, question, precision, older_precision, methods, typed, default):
    torch.set_default_device("cuda" if function is default else "cpu")
    breaks = torch._dynamo.explain(function)(x).graph_break_count
    torch._dynamo.reset()
    compiled, eager = torch.compile(function, mode="max-autotune")(x), function(x)
    same = torch.allclose(compiled, eager, atol=1e-2) and compiled.dtype == eager.dtype
    found[function.__name__] = [breaks, same, str(compiled.device)]
torch.set_default_device("cpu")
cuda = torch.device("cuda")
others = scripted(torch.ones(3), cuda), doubled(torch.ones(3), cuda)
found["others"] = [(str(each.device), each.tolist()) for each in others]
print(json.dumps(found))
"""


def test_compiled_and_scripted_functions_use_the_card(script, tmp_path):
    path = tmp_path / "functions.py"  # TorchScript and Dynamo read the source
    path.write_text(FUNCTIONS)
    printed = script(
        f"import runpy; runpy.run_path({str(path)!r})", simulated=True, PT_HPU_GPU_MIGRATION="1"
    )
    names = ["devices", "question", "precision", "older_precision", "methods", "typed", "default"]
    assert json.loads(printed.splitlines()[-1]) == {
        **{name: [0, True, "hpu:0"] for name in names},
        "others": [["hpu:0", [2.0, 2.0, 2.0]]] * 2,
    }


def test_subclasses_and_modes_receive_the_replacements(migrated):
    assert migrated(
        SEEN
        + """
mine = torch.ones(2).as_subclass(Seen)
calls = [
    (torch.Tensor.to, lambda: mine.to("cuda")),
    (torch.Tensor.cuda, lambda: mine.cuda()),
    (torch.zeros_like, lambda: torch.zeros_like(mine, device="cuda")),
]
found = []
for function, call in calls:
    seen.clear()
    result = call()
    found.append([function in seen, result.device.type, type(result).__name__])
with Mode():
    seen.clear()
    zeros = torch.zeros(2, device="cuda")
print(json.dumps([*found, [torch.zeros in seen, zeros.device.type]]))
"""
    ) == [*[[True, "hpu", "Seen"]] * 3, [True, "hpu"]]


def test_functions_and_types_can_be_pickled(migrated):
    assert (
        migrated(
            """
        import pickle
        found = [
            torch.zeros, torch.fft.fftfreq, torch.Tensor.to, torch.Tensor.cuda, torch.Generator,
            torch.device, torch.cuda.Event, torch.cuda.synchronize, torch.cuda.empty_cache,
        ]
        print(json.dumps([pickle.loads(pickle.dumps(each)) is each for each in found]))
        """
        )
        == [True] * 9
    )


def test_process_group_begins_and_ends_between_compiled_functions(migrated):
    """PyTorch then clears its caches of functions and fills them again."""
    found = migrated(
        """
        import os, tempfile
        import torch.distributed as dist

        @torch.compile(fullgraph=True)
        def f(x):
            return x.cuda() + torch.ones(2, device="cuda")

        values = [f(torch.ones(2).cuda()).tolist()]
        with tempfile.TemporaryDirectory() as folder:
            store = f"file://{folder}/store"
            dist.init_process_group("nccl", init_method=store, rank=0, world_size=1)
            backend = dist.get_backend()
            dist.destroy_process_group()
        torch._dynamo.reset()
        values.append(f(torch.ones(2).cuda()).tolist())
        print(json.dumps([backend, values]))
        """
    )
    assert found == ["nccl", [[2.0, 2.0], [2.0, 2.0]]]


def test_cuda_arguments_are_accepted(migrated):
    found = migrated(
        """
        import warnings

        warnings.simplefilter("ignore")
        x = torch.ones(4, device="cuda")
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            state = torch.cuda.get_rng_state()
            torch.cuda.manual_seed(3)
        with torch.random.fork_rng([0, "cuda:1"]):
            torch.cuda.manual_seed(4)
        kept = torch.equal(state, torch.cuda.get_rng_state())
        with torch.random.fork_rng(devices=[]):
            torch.cuda.manual_seed(5)
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
        devices = [str(torch.ones(1).device)]
        torch.set_default_tensor_type("torch.FloatTensor")
        devices.append(str(torch.ones(1).device))
        torch.set_default_device("cuda")
        torch.set_default_tensor_type(torch.DoubleTensor)
        devices.append(str(torch.ones(1).device))
        torch.set_default_device(None)
        print(json.dumps({
            "forked": [kept, not torch.equal(state, torch.cuda.get_rng_state())],
            "seeds": [torch.cuda.default_generators[0].initial_seed(), torch.cuda.initial_seed()],
            "bfloat16": torch.cuda.is_bf16_supported(including_emulation=False),
            "devices": devices,
            "storages": [x.storage().is_cuda, x.cpu().storage().is_cuda],
            "cuda's memory": [hasattr(x, "__cuda_array_interface__")],
        }))
        """
    )
    assert found == {
        "forked": [True, True],
        "seeds": [5, 5],
        "bfloat16": True,
        "devices": ["hpu:0", "cpu", "hpu:0"],
        "storages": [True, False],
        "cuda's memory": [False],
    }


def test_legacy_profiler_records_the_card(forked_script, needs):
    needs("PROFILED_CARDS")
    printed = forked_script(
        """
        import torch
        import habana_frameworks.torch.gpu_migration

        x = torch.ones(4, device="cuda")
        for options in ({"use_cuda": True}, {"use_device": "cuda"}):
            with torch.autograd.profiler.profile(**options) as record:
                (x @ x).item()
            table = record.key_averages().table(sort_by="cuda_time_total")
            print(record.use_device, "aten::dot" in table)
        with torch.autograd.profiler.profile(False, use_cuda=True) as record:
            x.sum()
        print(record)
        """,
        simulated=True,
    )
    assert printed.split()[-5:] == ["hpu", "True", "hpu", "True", "None"]


def test_cuda_graphs_are_hpu_graphs_in_lazy_mode(migrated):
    assert migrated(
        """
        linear, x = torch.nn.Linear(4, 4).cuda(), torch.ones(2, 4, device="cuda")
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                linear(x)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
            y = linear(x)
        pool = torch.cuda.graph_pool_handle()
        with torch.cuda.graph(torch.cuda.CUDAGraph(), pool=pool, stream=stream):
            pass
        x.fill_(2.0)
        graph.replay()
        torch.cuda.synchronize()
        graphed = torch.cuda.make_graphed_callables(linear, (torch.ones_like(x),))
        print(json.dumps([
            torch.allclose(y, linear(x)),
            torch.allclose(graphed(x), y),
            isinstance(graph, torch.cuda.CUDAGraph),
            torch.cuda.is_current_stream_capturing(),
        ]))
        """,
        lazy="1",
    ) == [True, True, True, False]


def test_pytorchs_tools_work_with_migration(migrated):
    assert migrated(
        """
        from torch.utils.checkpoint import checkpoint

        class Model(torch.nn.Module):
            def forward(self, x):
                return torch.zeros_like(x, device="cuda") + x.to("cuda") + torch.ones(2).cuda()

        model, x = Model(), torch.ones(2)
        layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5)).cuda()
        w = torch.ones(4, 2, device="cuda", requires_grad=True)
        checkpoint(layers, w, use_reentrant=False).sum().backward()
        with torch.random.fork_rng(devices=[0], device_type="cuda"):
            torch.cuda.manual_seed(3)
        parts = torch.cuda.comm.scatter(torch.arange(4.0), [0, 1])
        found = {
            "symbolic trace": torch.fx.symbolic_trace(model)(x),
            "export": torch.export.export(model, (x,)).module()(x),
            "vmap": torch.func.vmap(model)(torch.ones(3, 2)),
            "checkpoint": w.grad,
            "storage": torch.tensor([], device="cuda").set_(x.untyped_storage().cuda()),
            "gathered": torch.cuda.comm.gather(parts),
            "sum": torch.cuda.comm.reduce_add([x, x]),
        }
        values = [found[name].tolist() for name in ("symbolic trace", "export", "gathered", "sum")]
        elsewhere = [name for name, tensor in found.items() if tensor.device.type != "hpu"]
        print(json.dumps([elsewhere, values, len(parts)]))
        """
    ) == [[], [[2.0, 2.0], [2.0, 2.0], [0.0, 1.0, 2.0, 3.0], [2.0, 2.0]], 2]
