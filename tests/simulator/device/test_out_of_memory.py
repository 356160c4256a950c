"""A full card rejects requests before it allocates host memory."""

import subprocess
import textwrap

import pytest

pytestmark = pytest.mark.once

# Exactly 16 MiB: 396 + 10,564 + 396 * 10,564 float32 values
EXACT = """
    import torch
    from habana_frameworks.torch.core import mark_step
    x = torch.ones(396, 1, device="hpu")
    y = torch.ones(1, 10_564, device="hpu")
    mark_step()
    for _ in range(2):
        for work in (lambda: x + y, lambda: torch.hypot(x, y), lambda: torch.cdist(x, y.T, 1.0)):
            result = work()
            mark_step()
            in_use = torch.hpu.memory_allocated()
            shown = [result.shape, result.cpu().unique().numel()]
            del result
            print(in_use, torch.hpu.memory_allocated(), *shown)
    one = torch.ones(1, dtype=torch.uint8, device="hpu")
    mark_step()
    try:
        x + y
        mark_step()
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_result_may_fill_the_card_exactly(forked_script, lazy):
    *fitting, error = forked_script(
        EXACT, simulated=True, HPU_MAGIC_MEMORY="16MiB", PT_HPU_LAZY_MODE=lazy
    ).splitlines()
    operands = 4 * (396 + 10_564)
    assert fitting == [f"{16 << 20} {operands} torch.Size([396, 10564]) 1"] * 6
    assert error == (
        "[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::"
        f"{4 * 396 * 10_564} ({4 * 396 * 10_564 / (1 << 20):.6g})MB"
    )


REJECTED = """
    import resource
    import torch
    from torch.nn import functional as F
    from habana_frameworks.torch.core import mark_step
    from habana_frameworks.torch.utils.internal import is_lazy

    def grown():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 - before

    x = torch.ones(16_000, 1, device="hpu")
    y = torch.ones(1, 16_000, device="hpu")
    small = torch.zeros(4, device="hpu")
    rows = torch.zeros(1, 16_000, dtype=torch.long, device="hpu").expand(16_000, 16_000)
    half = torch.zeros(1 << 14, 1, dtype=torch.uint8, device="hpu").view(torch.float8_e5m2)
    large = torch.ones(12 << 20, device="hpu", requires_grad=True)
    loss = large.square().sum()
    (x[:300] + y[:, :300]).sum().item()
    attempts = {
        "factory": lambda: torch.zeros(1 << 30, dtype=torch.uint8, device="hpu"),
        "cat": lambda: torch.cat([x.expand(16_000, 2_000)] * 2),
        "kernel": lambda: x + y,
        "boxed": lambda: torch.hypot(x, y),
        "list": lambda: torch.broadcast_tensors(x, y)[0].clone(),
        "out": lambda: torch.mul(x, y, out=small),
        "gather": lambda: x.expand(16_000, 16_000).gather(1, rows),
        "widened": lambda: torch.maximum(half, half.T),
        "layer norm": lambda: F.layer_norm(x.expand(16_000, 16_000), (16_000,)),
        "batch norm": lambda: F.batch_norm(x.expand(16_000, 16_000), None, None, training=True),
        "after others": lambda: ((x + 1) * 2, (x + 1) + (y * 3)),
        "backward": lambda: loss.backward(),
    }
    if not is_lazy():
        compiled = torch.compile(lambda a, b: (a * b).relu(), backend="hpu_backend")
        compiled(x[:5], y[:, :6])
        attempts["compiled"] = lambda: compiled(x, y)
    mark_step()
    allocated = torch.hpu.memory_allocated()
    before = 0
    before = grown()
    for name, work in attempts.items():
        try:
            work()
            mark_step()
        except RuntimeError as error:
            message = str(error)
            assert "MODULE:PT_DEVMEM Allocation failed for size::" in message, message
        else:
            print(name, "was not rejected")
        peak = torch.hpu.memory_stats()["MaxInUse"] >> 20
        assert torch.hpu.memory_allocated() == allocated, name
        assert peak <= 100, peak
    assert [t.sum().item() for t in (x, y, small)] == [16_000, 16_000, 0]
    assert is_lazy() or large.grad is None
    assert (x[:3] + y[:, :3]).tolist() == [[2.0] * 3] * 3
    print("grown by", grown())
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_rejected_requests_do_not_use_host_memory(forked_script, lazy):
    printed = forked_script(
        REJECTED, simulated=True, HPU_MAGIC_MEMORY="100MiB", PT_HPU_LAZY_MODE=lazy
    )
    [line] = printed.splitlines()
    assert line.startswith("grown by ")
    assert int(line.removeprefix("grown by ")) < 150  # in MiB; the results would need 976 MiB


WIDENED = """
    import torch
    from habana_frameworks.torch.core import mark_step
    x = torch.full((6 << 20,), 0.5, device="cpu").to(torch.float8_e5m2).to("hpu")
    y = torch.maximum(x, x)
    mark_step()
    print(torch.hpu.memory_allocated(), y[:3].float().tolist(), x.amax().item())
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_types_that_the_cpu_computes_in_wider_types_need_no_more_device_memory(forked_script, lazy):
    printed = forked_script(
        WIDENED, simulated=True, HPU_MAGIC_MEMORY="16MiB", PT_HPU_LAZY_MODE=lazy
    )
    assert printed == f"{12 << 20} [0.5, 0.5, 0.5] 0.5\n"


REPLAYED = """
    import torch
    from habana_frameworks.torch import hpu

    x = torch.ones(1, 1, 1024, 1024, device="hpu")
    weight = torch.ones(3, 1, 3, 3, device="hpu")
    graph = hpu.HPUGraph()
    with hpu.graph(graph):
        large = torch.nn.functional.conv2d(x, weight, padding=1)
        sum = large + x
    print(hpu.memory_allocated() >> 20)
    for value in (1.0, 2.0):
        x.fill_(value)
        graph.replay()
        print(hpu.memory_allocated() >> 20, sum[0, :, 5, 5].tolist())
"""


def test_graph_is_replayed_on_a_card_that_its_tensors_fill(forked_script):
    printed = forked_script(
        REPLAYED, simulated=True, HPU_MAGIC_MEMORY="29MiB", PT_HPU_LAZY_MODE="1"
    )
    assert printed.splitlines() == ["28", *(f"28 {[value] * 3}" for value in (9.0 + 1, 18.0 + 2))]


CONVOLVED = """
    import torch
    from torch.nn import functional as F

    def error_of(work):
        try:
            work()
        except RuntimeError as error:
            return str(error).rpartition("::")[2]

    x = torch.ones(1, 1, 1024, 1024, device="hpu", requires_grad=True)
    weight = torch.ones(3, 1, 3, 3, device="hpu", requires_grad=True)
    result = F.conv2d(x, weight, padding=1)
    result.sum().backward()
    print(torch.hpu.memory_allocated() >> 20, result[0, 0, 5, 5].item(), x.grad[0, 0, 5, 5].item())
    print(error_of(lambda: F.conv2d(x, weight, padding=1)))
    print(error_of(lambda: F.conv_transpose2d(x, weight[:1], stride=2)))
    print(error_of(lambda: F.conv2d(x, weight, stride=2, dilation=3)))
"""


def test_convolution_needs_memory_only_for_its_result(forked_script):
    printed = forked_script(
        CONVOLVED, simulated=True, HPU_MAGIC_MEMORY="24MiB", PT_HPU_LAZY_MODE="0"
    )
    kept, larger, transposed, smaller = printed.splitlines()
    assert kept == "20 9.0 27.0"
    assert larger == f"{3 * 1024 * 1024 * 4} (12)MB"
    assert transposed == f"{2049 * 2049 * 4} ({2049 * 2049 * 4 / (1 << 20):.6g})MB"
    assert smaller == "None"


HOST = """
    import resource
    import torch
    from habana_frameworks.torch.core import mark_step

    image = torch.ones(1, 1, 4, 4).to("hpu").to(torch.float8_e4m3fn)
    kernel = torch.ones(1, 1, 2, 2).to("hpu").to(torch.float8_e4m3fn)
    convolve = torch.ops.hpu.conv2d_fp8
    convolve(image, kernel)
    mark_step()
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    for padding in ([40_000] * 2, [2**31, 0]):
        try:
            convolve(image, kernel, None, [1, 1], padding)
            mark_step()
        except RuntimeError as error:
            print(error)
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_lack_of_host_memory_is_reported_with_a_fix(forked_script, lazy):
    """The CPU kernel needs more memory than the result, for which the card has room."""
    printed = forked_script(HOST, simulated=True, PT_HPU_LAZY_MODE=lazy).splitlines()
    assert len(printed) == 2
    assert all(line.startswith("[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM") for line in printed)
    fix = "or set HPU_MAGIC_MEMORY to a smaller size."
    assert printed[0].endswith(fix)


MANY = """
    import pathlib, subprocess, sys
    import torch
    def available(mebibytes):
        pathlib.Path("/proc/meminfo").write_text(f"MemAvailable: {mebibytes << 10} kB\\n")
    from habana_frameworks.torch.core import mark_step
    def allocate(number):
        found = [torch.ones(1 << 26, dtype=torch.uint8, device="hpu") for _ in range(number)]
        mark_step()
        return found
    available(10_000)
    kept = allocate(8)
    available(300)
    before = torch.hpu.memory_allocated()
    try:
        allocate(8)
    except RuntimeError as error:
        print(error)
    print(torch.hpu.memory_allocated() - before)
    available(10_000)
    print(len(allocate(8)))
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_many_tensors_are_rejected_before_the_host_is_out_of_memory(script, tmp_path, lazy):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemAvailable: 10000000 kB\n")
    private = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*private, "true"], capture_output=True).returncode != 0:
        pytest.skip("this user may not create namespaces")
    run = f"""
    import subprocess, sys
    code = {textwrap.dedent(MANY)!r}
    mounted = f"mount --bind {meminfo} /proc/meminfo && exec {{sys.executable}} -c \\"$0\\""
    subprocess.run([*{private!r}, "sh", "-c", mounted, code], check=True)
    """
    error, in_use, number = script(run, simulated=True, PT_HPU_LAZY_MODE=lazy).splitlines()
    assert error.startswith("[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed")
    assert error.endswith("or set HPU_MAGIC_MEMORY to a smaller size.")
    assert (in_use, number) == ("0", "8")


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_rejected_resize_changes_nothing(forked_script, lazy):
    code = """
    import torch
    x = torch.arange(4.0).to("hpu").view(2, 2).t()
    try:
        x.resize_(1 << 20)
        x.add_(1)
        x.cpu()
    except RuntimeError as error:
        print(str(error).splitlines()[0])
    print(x.shape, x.stride(), torch.hpu.memory_allocated())
    """
    settings = {"HPU_MAGIC_MEMORY": "1MiB", "PT_HPU_LAZY_MODE": lazy}
    error, left = forked_script(code, simulated=True, **settings).splitlines()
    assert error.startswith(
        "[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::4194"
    )
    assert left == "torch.Size([2, 2]) (1, 2) 16"
