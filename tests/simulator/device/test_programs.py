"""Compiled random programs match the CPU; many lazy steps and replays keep memory constant."""

import pytest
import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch.utils.internal import is_lazy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Each step gets two live tensors, and returns a new tensor or changes the first one.
PURE = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b * 0.5,
    "matmul": lambda a, b: a @ b.t() / 4,
    "relu": lambda a, b: torch.relu(a),
    "sum": lambda a, b: a + b.sum(0, keepdim=True) / 4,
    "softmax": lambda a, b: torch.softmax(a, 1),
    "cat": lambda a, b: torch.cat([a[:2], b[2:]]),
    "where": lambda a, b: torch.where(a > b, a, b),
    "clone": lambda a, b: a.clone(),
}
VIEWS = {
    "transpose": lambda a: a.t(),
    "alias": lambda a: a.view(4, 4),
    "flip_halves": lambda a: a.as_strided((4, 4), (4, 1)),
    "of_a_view": lambda a: a[:, :].t().t(),
}
IN_PLACE = {
    "add_": lambda a, b: a.add_(b.clone(), alpha=0.5),  # b may be a view of a
    "mul_": lambda a, b: a.mul_(0.9),
    "zero_row": lambda a, b: a[1].zero_(),
    "copy_row": lambda a, b: a[0].copy_(b[3]),
    "clamp_": lambda a, b: a.clamp_(-2, 2),
    "fill_block": lambda a, b: a[1:3, ::2].fill_(0.25),
    "out": lambda a, b: torch.tanh(b.clone(), out=a) if a.is_contiguous() else a,
}
READS = ["item", "tolist", "none", "none"]

steps = st.lists(
    st.tuples(
        st.sampled_from(sorted(PURE) + sorted(VIEWS) + sorted(IN_PLACE)),
        st.integers(0, 100),
        st.integers(0, 100),
        st.sampled_from(READS),
    ),
    min_size=1,
    max_size=25,
)


def inputs(device):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 4, generator=generator).to(device) for _ in range(3)]


def run(program, tensors):
    live, seen = list(tensors), []
    for name, first, second, read in program:
        a, b = live[first % len(live)], live[second % len(live)]
        if name in PURE:
            live.append(PURE[name](a, b))
        elif name in VIEWS:
            view = VIEWS[name]
            live.append(view(a) if name == "transpose" or a.is_contiguous() else a.t())
        else:
            IN_PLACE[name](a, b)
        if read == "item":
            seen.append(live[-1].sum().item())
        elif read == "tolist":
            seen.append(live[-1][0].tolist())
    return live, seen


def same(actual, expected):
    for on_hpu, on_cpu in zip(actual, expected, strict=True):
        torch.testing.assert_close(on_hpu.cpu(), on_cpu, equal_nan=True)


@pytest.mark.skipif(is_lazy(), reason="hpu_backend needs eager mode")
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(steps)
def test_compiled_program_gives_the_values_of_the_cpu(program):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(lambda *tensors: run(program, tensors), backend="hpu_backend")
    expected, expected_reads = run(program, inputs("cpu"))
    actual, reads = compiled(*inputs("hpu"))
    same(actual, expected)
    torch.testing.assert_close(reads, expected_reads, equal_nan=True)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1


@pytest.mark.skipif(not is_lazy(), reason="only lazy mode records operations")
class TestLongRuns:
    def test_ten_thousand_steps_do_not_increase_memory(self):
        weight = torch.randn(8, 8, device="hpu", requires_grad=True)
        optimizer = torch.optim.SGD([weight], 1e-3)

        def step():
            optimizer.zero_grad()
            (weight @ weight).sum().backward()
            optimizer.step()
            htcore.mark_step()

        for _ in range(3):
            step()
        before = torch.hpu.memory_allocated()
        for _ in range(10_000):
            step()
        assert torch.hpu.memory_allocated() == before

    def test_peak_in_lazy_mode_does_not_exceed_eager_mode(self, forked_script):
        code = """
            import torch
            from habana_frameworks.torch.core import mark_step
            x = torch.ones(1 << 18, device="hpu")
            mark_step()
            torch.hpu.reset_peak_memory_stats()
            for _ in range(6):
                x = torch.relu(x * 2 + 1)
            x.sum().item()
            print(torch.hpu.max_memory_allocated())
        """
        eager = int(forked_script(code, simulated=True, PT_HPU_LAZY_MODE="0"))
        assert int(forked_script(code, simulated=True, PT_HPU_LAZY_MODE="1")) <= eager

    def test_failed_mark_step_keeps_only_the_memory_of_live_results(self):
        table, rows = torch.ones(3, 1024, device="hpu"), torch.tensor([0, 7], device="hpu")
        htcore.mark_step()
        before = torch.hpu.memory_allocated()
        doubled = table * 2
        dropped = (table * 3 + 1).sum(0)
        later = torch.nn.functional.embedding(rows, doubled) + dropped
        with pytest.raises(IndexError):
            htcore.mark_step()
        assert torch.hpu.memory_allocated() - before == doubled.nbytes + dropped.nbytes
        assert doubled.sum().item() == 2 * 3 * 1024
        del doubled, dropped, later
        assert torch.hpu.memory_allocated() == before

    def test_recording_and_reading_threads_do_not_deadlock(self, forked_script):
        # These calls need the GIL and the recorder's lock in different orders.
        assert forked_script(
            """
            import threading, time
            import torch
            x = torch.ones(8, 4, device="hpu")
            storage = torch.ones(9, device="hpu").untyped_storage()
            done = threading.Event()

            def read():
                y = torch.ones(4, device="hpu")
                while not done.is_set():
                    (y + 1).sum().item()

            def resize():
                storage.resize_(0)
                storage.resize_(36)

            readers = [threading.Thread(target=read, daemon=True) for _ in range(2)]
            for reader in readers:
                reader.start()
            looks = [lambda: x.__setitem__(0, 5.0), lambda: torch.hpu.manual_seed(1), resize]
            looks += [lambda: storage[0], storage.clone, torch.Event("hpu").record]
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                for look in looks:
                    look()
            done.set()
            for reader in readers:
                reader.join(100)
            print(x[0].tolist(), any(reader.is_alive() for reader in readers))
            """,
            simulated=True,
            PT_HPU_LAZY_MODE="1",
        ).splitlines() == ["[5.0, 5.0, 5.0, 5.0] False"]
