"""Test HPU Graphs: accepted inputs, streams, marks, and rejected captures."""

import pytest
from lazy_process import SCALE

CAPTURED = """
x, z = torch.ones(2, device="hpu"), torch.ones(2, device="hpu")
graph = torch.hpu.HPUGraph()
graph.capture_begin()
graph.mark_user_inputs([x, z])
y = x * 10 + z
graph.capture_end()

three = torch.full((2,), 3.0, device="hpu")
"""

MOVE_IT = 'but the inputs of a graph must be on the device; move it with .to("hpu").'


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("torch.ones(2)", f"Input 1 is on cpu, {MOVE_IT}"),
        (
            "torch.ones(5, device='hpu')",
            "Input 1 has shape [5], but the graph was captured with [2]; pad it to that shape, or "
            "capture another graph.",
        ),
        (
            "torch.ones(2, device='hpu', dtype=torch.int32)",
            "Input 1 has dtype torch.int32, but the graph was captured with torch.float32; convert "
            "it with .to(torch.float32).",
        ),
    ],
)
@pytest.mark.parametrize("replay", ["graph.replayV3(", "graph.replayV2([x, z], "])
def test_rejected_input_is_named_and_nothing_is_replayed(lazy_process, replay, bad, message):
    assert lazy_process(
        CAPTURED
        + f"""
print(error_of(lambda: {replay}[three, {bad}])))
print(x.tolist(), y.tolist())
"""
    ) == [message, "[1.0, 1.0] [11.0, 11.0]"]


def test_missing_inputs_are_rejected_with_both_numbers(lazy_process):
    (line,) = lazy_process(CAPTURED + "\nprint(error_of(graph.replayV3, [three]))")
    assert "captured with 2 input tensors, but got 1; pass the same" in line


def test_wrapped_function_rejects_unsuitable_inputs_before_and_after_its_capture(lazy_process):
    assert lazy_process(
        """
        calls = []
        def double(x):
            calls.append(x.shape)
            return x * 2
        graphed = torch.hpu.wrap_in_hpu_graph_func(double)
        print(error_of(graphed, torch.ones(2)), len(calls))
        out = graphed(torch.full((2,), 4.0, device="hpu"))
        print(error_of(graphed, torch.ones(2)), len(calls), out.tolist())
        print(error_of(graphed, torch.ones(2, dtype=torch.int32, device="hpu")).partition(";")[0])
        graphed.clear_inputs()
        before = torch.hpu.memory_allocated()
        print(error_of(graphed, torch.ones(2)), torch.hpu.memory_allocated() - before)
        """
    ) == [
        *(f"Input 0 is on cpu, {MOVE_IT} {rest}" for rest in ("0", "1 [8.0, 8.0]")),
        "Input 0 has dtype torch.int32, but the graph was captured with torch.float32",
        f"Input 0 is on cpu, {MOVE_IT} 0",
    ]


def test_bypassed_module_accepts_cpu_inputs(lazy_process):
    assert lazy_process(
        """
        class Mover(torch.nn.Module):
            def forward(self, x):
                return x.to("hpu") + 1
        wrapped = torch.hpu.wrap_in_hpu_graph(Mover())
        print(wrapped(torch.ones(1), bypass_hpu_graphs=True).tolist())
        """
    ) == ["[2.0]"]


def test_make_graphed_callables_rejects_unsuitable_samples_and_inputs(lazy_process):
    assert lazy_process(
        """
        sample = torch.ones(2, device="hpu")
        print(error_of(torch.hpu.make_graphed_callables, torch.sin, (torch.ones(2),)))
        graphed = torch.hpu.make_graphed_callables(lambda x: x + 1, (sample,))
        print(error_of(graphed, torch.zeros(2)))
        print(error_of(graphed, torch.zeros(3, device="hpu")).partition(";")[0])
        print(sample.tolist(), torch.hpu.is_current_stream_capturing())
        """
    ) == [
        *[f"Input 0 is on cpu, {MOVE_IT}"] * 2,
        "Input 0 has shape [3], but the graph was captured with [2]",
        "[1.0, 1.0] False",
    ]


def test_module_cacher_rejects_a_cpu_input_and_keeps_its_graphs(lazy_process):
    assert lazy_process(
        SCALE
        + """
model = torch.hpu.ModuleCacher(max_graphs=1)(Scale(), use_lfu=True)
x = torch.ones(2, device="hpu")
model(x)
for rows in (2, 3):  # the captured shape, and one that would replace it
    print(error_of(model, torch.ones(rows)))
model(x)
print(len(calls))
"""
    ) == [f"Input 0 is on cpu, {MOVE_IT}"] * 2 + ["1"]


def test_copy_to_copies_cpu_tensors_to_the_device(lazy_process):
    assert lazy_process(
        """
        from habana_frameworks.torch.hpu.graphs import copy_to
        own = {"x": torch.zeros(2, device="hpu")}
        print(copy_to(own, {"x": torch.ones(2)}) is own, own["x"].tolist())
        """
    ) == ["True [1.0, 1.0]"]


def test_graph_accepts_no_inputs_after_clear_inputs(lazy_process):
    (line, values) = lazy_process(
        CAPTURED
        + """
graph.clear_inputs()
print(error_of(graph.replayV3, [three, three]))
x.fill_(2)
graph.replayV3([])
print(y.tolist(), graph.get_user_input_match_indices())
"""
    )
    assert "captured with 0 input tensors, but got 2" in line
    assert values == "[21.0, 21.0] []"


def test_graph_is_captured_on_the_passed_stream(lazy_process):
    assert lazy_process(
        """
        stream, before = torch.hpu.Stream(), torch.hpu.current_stream()
        x = torch.ones(2, device="hpu")
        graph = torch.hpu.HPUGraph()
        with torch.hpu.graph(graph, stream=stream):
            print(torch.hpu.current_stream() == stream)
            y = x + 1
        print(torch.hpu.current_stream() == before)
        x.fill_(5)
        graph.replay()
        print(y.tolist())
        """
    ) == ["True", "True", "[6.0, 6.0]"]


def test_mode_is_read_once(lazy_process):
    assert lazy_process(
        """
        import os
        os.environ["PT_HPU_LAZY_MODE"] = "0"
        try:
            graph = torch.hpu.HPUGraph()
            x = torch.ones(1, device="hpu")
            with torch.hpu.graph(graph):
                y = x + 1
            x.fill_(4)
            graph.replay()
            print(y.tolist())
        finally:
            os.environ["PT_HPU_LAZY_MODE"] = "1"
        """
    ) == ["[5.0]"]


def test_rejected_capture_frees_its_memory(lazy_process):
    assert lazy_process(
        """
        import gc
        x = torch.ones(1024, device="hpu")
        graph = torch.hpu.HPUGraph()
        with torch.hpu.graph(graph):
            x * 2
        graph.reset()
        gc.collect()
        torch.hpu.synchronize()
        before = torch.hpu.memory_allocated()
        try:
            with torch.hpu.graph(graph):
                y = x * 2
                y.sum().item()
        except RuntimeError:
            pass
        del y
        gc.collect()
        torch.hpu.synchronize()
        print(torch.hpu.memory_allocated() - before)
        """
    ) == ["0"]


def test_failed_step_closure_keeps_no_memory(lazy_process):
    assert lazy_process(
        """
        import gc
        def fail(tensor):
            raise ValueError(tensor.shape)
        def step():
            x = torch.ones(1024, device="hpu") * 2
            htcore.add_step_closure(fail, (x,))
            del x
            try:
                htcore.mark_step()
            except ValueError:
                pass
            gc.collect()
            torch.hpu.synchronize()
            return torch.hpu.memory_allocated()
        print(step() - step())
        """
    ) == ["0"]


def test_recorded_tensor_changes_its_shape_in_place(lazy_process):
    assert lazy_process(
        """
        x = torch.arange(6.0, device="hpu").view(2, 3) + 1
        x.t_()
        print(tuple(x.shape), x.is_contiguous())
        y = (x * 2).transpose_(0, 1).unsqueeze_(0)
        print(tuple(y.shape), y.tolist(), x.tolist())
        """
    ) == [
        "(3, 2) False",
        "(1, 2, 3) [[[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]] [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]",
    ]
