"""HPU Graphs: which inputs they take, and what streams, marks and failures leave behind."""

import pytest

CAPTURED = """
x, z = torch.ones(2, device="hpu"), torch.ones(2, device="hpu")
graph = torch.hpu.HPUGraph()
graph.capture_begin()
graph.mark_user_inputs([x, z])
y = x * 10 + z
graph.capture_end()

def refused(call):
    try:
        call()
    except RuntimeError as error:
        print(error)

three = torch.full((2,), 3.0, device="hpu")
"""

MOVE_IT = 'but a graph needs its inputs on the device; move it with .to("hpu").'


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("torch.ones(2)", f"Input 1 is on cpu, {MOVE_IT}"),
        (
            "torch.ones(5, device='hpu')",
            "Input 1 has shape [5], but the graph was captured with [2]; pad it to that shape, or "
            "capture a graph for the new one.",
        ),
        (
            "torch.ones(2, device='hpu', dtype=torch.int32)",
            "Input 1 is torch.int32, but the graph was captured with torch.float32; convert it "
            "with .to(torch.float32).",
        ),
    ],
)
@pytest.mark.parametrize("replay", ["graph.replayV3(", "graph.replayV2([x, z], "])
def test_a_refused_input_is_named_and_nothing_is_replayed(lazy_process, replay, bad, said):
    assert lazy_process(
        CAPTURED
        + f"""
refused(lambda: {replay}[three, {bad}]))
print(x.tolist(), y.tolist())
"""
    ) == [said, "[1.0, 1.0] [11.0, 11.0]"]


def test_too_few_inputs_are_refused_with_both_numbers(lazy_process):
    (line,) = lazy_process(CAPTURED + "\nrefused(lambda: graph.replayV3([three]))")
    assert "captured with 2 input tensors, but got 1; pass the same" in line


def test_a_wrapped_function_refuses_a_host_input_before_and_after_its_capture(lazy_process):
    assert lazy_process(
        """
        calls = []
        def double(x):
            calls.append(x.shape)
            return x * 2
        graphed = torch.hpu.wrap_in_hpu_graph_func(double)
        def refused():
            try:
                graphed(torch.ones(2))
            except RuntimeError as error:
                print(error)
        refused()
        print(len(calls))
        out = graphed(torch.full((2,), 4.0, device="hpu"))
        refused()
        print(out.tolist(), len(calls))
        graphed.clear_inputs()
        before = torch.hpu.memory_allocated()
        refused()
        print(torch.hpu.memory_allocated() - before)
        """
    ) == [
        f"Input 0 is on cpu, {MOVE_IT}",
        "0",
        f"Input 0 is on cpu, {MOVE_IT}",
        "[8.0, 8.0] 1",
        f"Input 0 is on cpu, {MOVE_IT}",
        "0",
    ]


def test_a_wrapped_module_that_bypasses_its_graphs_judges_inputs_itself(lazy_process):
    assert lazy_process(
        """
        class Mover(torch.nn.Module):
            def forward(self, x):
                return x.to("hpu") + 1
        wrapped = torch.hpu.wrap_in_hpu_graph(Mover())
        print(wrapped(torch.ones(1), bypass_hpu_graphs=True).tolist())
        """
    ) == ["[2.0]"]


def test_make_graphed_callables_refuses_host_samples_and_host_inputs(lazy_process):
    assert lazy_process(
        """
        def refused(call):
            try:
                call()
            except RuntimeError as error:
                print(error)
        sample = torch.ones(2, device="hpu")
        refused(lambda: torch.hpu.make_graphed_callables(torch.sin, (torch.ones(2),)))
        graphed = torch.hpu.make_graphed_callables(lambda x: x + 1, (sample,))
        refused(lambda: graphed(torch.zeros(2)))
        print(sample.tolist(), torch.hpu.is_current_stream_capturing())
        """
    ) == [f"Input 0 is on cpu, {MOVE_IT}"] * 2 + ["[1.0, 1.0] False"]


def test_module_cacher_refuses_a_host_input_and_keeps_its_graphs(lazy_process):
    assert lazy_process(
        """
        calls = []
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(1, device="hpu"))
            def forward(self, x):
                calls.append(x.shape)
                return x * self.weight
        model = torch.hpu.ModuleCacher(max_graphs=1)(Model(), use_lfu=True)
        x = torch.ones(2, device="hpu")
        model(x)
        for rows in (2, 3):  # the kind that is captured, and one that would take its place
            try:
                model(torch.ones(rows))
            except RuntimeError as error:
                print(error)
        model(x)
        print(len(calls))
        """
    ) == [f"Input 0 is on cpu, {MOVE_IT}"] * 2 + ["1"]


def test_copy_to_brings_host_tensors_to_the_device(lazy_process):
    assert lazy_process(
        """
        from habana_frameworks.torch.hpu.graphs import copy_to
        own = {"x": torch.zeros(2, device="hpu")}
        print(copy_to(own, {"x": torch.ones(2)}) is own, own["x"].tolist())
        """
    ) == ["True [1.0, 1.0]"]


def test_after_clear_inputs_a_graph_takes_none(lazy_process):
    (line, values) = lazy_process(
        CAPTURED
        + """
graph.clear_inputs()
refused(lambda: graph.replayV3([three, three]))
x.fill_(2)
graph.replayV3([])
print(y.tolist(), graph.get_user_input_match_indices())
"""
    )
    assert "captured with 0 input tensors, but got 2" in line
    assert values == "[21.0, 21.0] []"


def test_a_graph_is_captured_on_the_stream_it_is_given(lazy_process):
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


def test_a_mark_step_inside_a_capture_leaves_both_parts_in_the_replay(lazy_process):
    assert lazy_process(
        """
        x = torch.ones(2, device="hpu")
        graph = torch.hpu.HPUGraph()
        with torch.hpu.graph(graph):
            y = x + 1
            htcore.mark_step()
            z = y * 10
        x.fill_(2)
        graph.replay()
        print(y.tolist(), z.tolist())
        """
    ) == ["[3.0, 3.0] [30.0, 30.0]"]


def test_the_mode_is_read_once(lazy_process):
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


def test_a_refused_capture_gives_its_memory_back(lazy_process):
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


def test_a_step_closure_that_raises_keeps_no_memory(lazy_process):
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


def test_a_recorded_tensor_changes_its_shape_in_place(lazy_process):
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
