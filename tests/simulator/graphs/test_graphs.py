"""Test HPU Graphs: capture and replay, and rejected operations."""

import pytest

REJECTED = """
before = torch.ones(2, device="hpu")
graph = torch.hpu.HPUGraph()
try:
    with torch.hpu.graph(graph):
        {line}
except Exception as error:
    print(type(error).__name__, error)
print(torch.hpu.is_current_stream_capturing(), (torch.ones(2, device="hpu") + 1).tolist())
"""


@pytest.mark.parametrize(
    ("captured", "replayed"),
    [
        ("y = x * 2 + 1", "[11.0, 11.0]"),
        ('y = x * torch.tensor([3.0, 4.0], device="hpu")', "[15.0, 20.0]"),
        ("z = x + 1; htcore.mark_step(); y = z * 10", "[60.0, 60.0]"),
    ],
    ids=["expression", "host values are constants", "mark step"],
)
def test_replay_writes_to_the_captured_tensors(lazy_process, captured, replayed):
    assert lazy_process(
        f"""
        x = torch.ones(2, device="hpu")
        graph = torch.hpu.HPUGraph()
        with torch.hpu.graph(graph):
            {captured}
        address = y.data_ptr()
        x.fill_(5)
        graph.replay()
        print(y.tolist(), y.data_ptr() == address)
        """
    ) == [f"{replayed} True"]


def test_dry_run_executes_nothing_before_the_first_replay(lazy_process):
    assert lazy_process(
        """
        total = torch.zeros(1, device="hpu")
        graph = torch.hpu.HPUGraph()
        with torch.hpu.graph(graph, dry_run=True):
            total.add_(1)
        print(total.item())
        graph.replay()
        graph.replay()
        print(total.item())
        """
    ) == ["0.0", "2.0"]


def test_replay_v2_and_v3_copy_the_inputs_first(lazy_process):
    assert lazy_process(
        """
        x = torch.ones(2, device="hpu")
        graph = torch.hpu.HPUGraph()
        graph.capture_begin()
        graph.mark_user_inputs([x])
        y = x * 10
        graph.mark_user_outputs([y])
        graph.capture_end()
        graph.replayV3([torch.full((2,), 3.0, device="hpu")])
        print(y.tolist(), graph.get_user_input_match_indices())
        graph.replayV2([x], [torch.full((2,), 4.0, device="hpu")])
        print(y.tolist())
        """
    ) == ["[30.0, 30.0] [0]", "[40.0, 40.0]"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("torch.ones(1, device='hpu').item()", "host"),
        ("before.cpu()", "(aten::copy_)"),
        ("y = before + 1; torch.hpu.synchronize(); y.tolist()", "host"),
        ("before.copy_(torch.zeros(2))", "from the host into an existing tensor"),
        ("y = before + 1; y.copy_(torch.zeros(2))", "(aten::copy_)"),
        ("torch.ones(3, device='hpu').nonzero()", "data"),
        ("torch.linalg.matrix_rank(torch.eye(3, device='hpu'))", "during hpu graph capturing"),
        ("torch.hpu.HPUGraph().capture_begin()", "GRAPH:: graph Capture already in progress"),
        ("graph.replay()", "GRAPH:: Capture in progress"),
        ("graph.replayV3([torch.ones(1)])", "Mark User Input Sizes is not same"),
        ("torch.hpu.set_stream(torch.hpu.Stream())", "same stream it began on"),
        ("raise ValueError('a mistake of the user')", "ValueError a mistake of the user"),
        ("[graph.mark_user_outputs([]) for _ in range(2)]", "is called more than once"),
    ],
)
def test_rejected_capture_ends_and_leaves_the_device_usable(lazy_process, line, message):
    error, after = lazy_process(REJECTED.format(line=line))
    assert message in error
    assert after == "False [2.0, 2.0]"


def test_fallback_that_a_capture_rejects_is_not_counted(lazy_process):
    message, before, after = lazy_process(
        """
        from habana_frameworks.torch.utils.debug import _get_fallback_op_count
        x = torch.eye(3, device="hpu")
        counted = dict(_get_fallback_op_count())
        try:
            with torch.hpu.graph(torch.hpu.HPUGraph()):
                torch._linalg_eigh(x)
        except RuntimeError as error:
            print(error)
        print(counted)
        print(dict(_get_fallback_op_count()))
        """
    )
    assert "cpu fallback is not supported during hpu graph capturing" in message
    assert "_linalg_eigh" in message
    assert before == after


def test_capture_end_after_a_rejection_raises_and_does_not_end_another_capture(lazy_process):
    message, *lines = lazy_process(
        """
        first, second = torch.hpu.HPUGraph(), torch.hpu.HPUGraph()
        x = torch.ones(2, device="hpu")
        first.capture_begin()
        error_of(x.cpu)
        second.capture_begin()
        y = x + 1
        print(error_of(first.capture_end))
        print(torch.hpu.is_current_stream_capturing())
        second.capture_end()
        x.fill_(5)
        second.replay()
        print(y.tolist())
        """
    )
    assert message.startswith("GRAPH:: The capture has already failed because of")
    assert lines == ["True", "[6.0, 6.0]"]


def test_failure_in_a_capture_ends_it_and_keeps_other_errors(lazy_process):
    assert lazy_process(
        """
        x, beyond = torch.ones(3, device="hpu"), torch.tensor([9], device="hpu")
        stream = torch.hpu.current_stream().stream_id

        def ended_by(code):
            torch.hpu.synchronize()
            graph = torch.hpu.HPUGraph()
            try:
                with torch.hpu.graph(graph):
                    code()
            except Exception as error:
                print(type(error).__name__, torch.hpu.current_stream().stream_id == stream)

        def users():
            x[beyond]
            raise ValueError

        def swallowed():
            x.add_(1)
            x[beyond]
            try:
                htcore.mark_step()
            except IndexError:
                pass
            x.add_(10)

        ended_by(lambda: x[beyond])
        ended_by(users)
        ended_by(swallowed)
        try:
            with torch.hpu.stream(torch.hpu.Stream()):
                x[beyond]
        except IndexError:
            print(torch.hpu.current_stream().stream_id == stream)
        """
    ) == ["IndexError True", "ValueError True", "RuntimeError True", "True"]


def test_results_of_an_aborted_dry_run_are_never_computed(lazy_process):
    never, host_copy = lazy_process(
        """
        x = torch.ones(3, device="hpu")
        graph = torch.hpu.HPUGraph()
        try:
            with torch.hpu.graph(graph, dry_run=True):
                y = x * 2
                htcore.mark_step()
                raise ValueError
        except ValueError:
            pass
        print(error_of(y.cpu))
        try:
            with torch.hpu.graph(graph, dry_run=True):
                y = x * 2
                htcore.mark_step()
                y.copy_(torch.ones(3))
        except RuntimeError as error:
            print(error)
        """
    )
    assert "never computed" in never
    assert "from the host into an existing tensor" in host_copy


def test_calls_outside_a_capture_are_rejected(lazy_process):
    assert lazy_process(
        """
        graph = torch.hpu.HPUGraph()
        x = torch.ones(2, device="hpu")
        print(error_of(graph.mark_user_inputs, []))
        print(error_of(graph.capture_end))
        graph.capture_begin()
        y = x + 1
        graph.capture_end()
        graph.replay()
        from hpu_magic.simulator import engine
        print(engine.load().pending_operations(), torch.hpu.is_current_stream_capturing(), y[0])
        """
    ) == [
        "GRAPH:: mark_user_inputs must be while capturing in progress",
        "GRAPH:: No capture in progress; call capture_begin() of this graph before its "
        "capture_end().",
        "0 False tensor(2., device='hpu:0')",
    ]


def test_replay_of_an_empty_graph_warns_once(lazy_process):
    assert lazy_process(
        """
        import warnings

        x, graph = torch.ones(2, device="hpu"), torch.hpu.HPUGraph()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                graph.replay()
                graph.replayV2([x], [x * 2])
                with torch.hpu.graph(graph):
                    y = x + 1
                graph.replay()
                graph.reset()
        print(*(f"{each.category.__name__} {each.message}" for each in caught), sep="; ")
        print(x.tolist(), y.tolist())
        """
    ) == [
        "RuntimeWarning GRAPH:: Nothing to replay; run operations on device tensors "
        "between capture_begin() and capture_end() of this graph.",
        "[4.0, 4.0] [5.0, 5.0]",
    ]


@pytest.mark.parametrize(
    "capture",
    [
        "with torch.hpu.graph(graph): pass",
        "with torch.hpu.graph(graph): x.t()",
        "with torch.hpu.graph(graph, stream=torch.hpu.Stream()): pass",
        "with torch.hpu.graph(graph, stream=torch.hpu.Stream(), dry_run=True): pass",
        "graph.capture_begin(); graph.capture_end()",
    ],
)
def test_capture_may_be_empty(lazy_process, capture):
    assert lazy_process(
        f"""
        import warnings

        x, graph = torch.ones(2, device="hpu"), torch.hpu.HPUGraph()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            {capture}
            print(len(caught), torch.hpu.is_current_stream_capturing())
            graph.replay()
            graph.replay(asynchronous=True)
        print(len(caught), (x + 1).tolist())
        """
    ) == ["0 False", "1 [2.0, 2.0]"]


def test_replay_does_not_allocate_memory(lazy_process):
    assert lazy_process(
        """
        x = torch.ones(64, 64, device="hpu")
        graph = torch.hpu.HPUGraph()
        with torch.hpu.graph(graph):
            y = ((x @ x).relu() + 1).sum(0)
        graph.replay()
        torch.hpu.synchronize()
        before = torch.hpu.memory_stats()
        for _ in range(10_000):
            graph.replay()
        after = torch.hpu.memory_stats()
        print(after["InUse"] - before["InUse"], after["MaxInUse"] - before["MaxInUse"])
        del x, y
        graph.reset()
        del graph
        print(torch.hpu.memory_allocated() < before["InUse"])
        """
    ) == ["0 0", "True"]


def test_replay_of_a_convolution_keeps_the_addresses(lazy_process):
    assert lazy_process(
        """
        from torch import nn
        model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.MaxPool2d(2)).to("hpu")
        x = torch.randn(2, 4, 32, 32, device="hpu")
        graph = torch.hpu.HPUGraph()
        with torch.no_grad(), torch.hpu.graph(graph):
            hidden = model[0](x)
            result = model[2](model[1](hidden))
        tensors = (hidden, result)
        addresses = [tensor.data_ptr() for tensor in tensors]
        for _ in range(3):
            x.copy_(torch.randn(2, 4, 32, 32))
            graph.replay()
            with torch.no_grad():
                print(torch.equal(result.cpu(), model.cpu()(x.cpu())))
            model.to("hpu")
        print([tensor.data_ptr() for tensor in tensors] == addresses)
        """
    ) == ["True", "True", "True", "True"]


def test_clone_of_a_captured_tensor_is_independent_of_replays(lazy_process):
    assert lazy_process(
        """
        x = torch.ones(4, 256, 256, device="hpu")
        graph = torch.hpu.HPUGraph()
        with torch.hpu.graph(graph):
            y = x.relu().sigmoid()
            rows = y.view(4, -1)
        kept = y.clone()
        view = y[1:]
        x.fill_(-3)
        graph.replay()
        print(kept.min().item() > 0.7, y.max().item(), view.max().item(), rows.max().item())
        """
    ) == ["True 0.5 0.5 0.5"]


def test_graphs_are_rejected_in_eager_mode(torch):
    for use in (
        torch.hpu.HPUGraph,
        lambda: torch.hpu.wrap_in_hpu_graph(torch.nn.Linear(1, 1)),
        lambda: torch.hpu.make_graphed_callables(torch.sin, (torch.ones(1, device="hpu"),)),
    ):
        with pytest.raises(RuntimeError, match=r"in lazy mode; set PT_HPU_LAZY_MODE=1 before"):
            use()
    assert not torch.hpu.is_current_stream_capturing()


def test_input_with_a_storage_resized_to_its_own_size_is_still_read(lazy_process):
    assert lazy_process(
        """
        x = torch.arange(3.0, device="hpu")
        graph = torch.hpu.HPUGraph()
        with torch.hpu.graph(graph):
            y = x * 2 + 1
        print(y.tolist())
        storage = x.untyped_storage()
        print(storage.resize_(12) is storage, storage.nbytes(), x.tolist())
        x.fill_(5)
        graph.replay()
        print(y.tolist())
        """
    ) == ["[1.0, 3.0, 5.0]", "True 12 [0.0, 1.0, 2.0]", "[11.0, 11.0, 11.0]"]
