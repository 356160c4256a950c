"""HPU Graphs: capture and replay, wrapped modules, training, and what is refused."""

import pytest
from lazy_process import LazyProcess

MODEL = """
import copy
from torch import nn

torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).to("hpu")
other = copy.deepcopy(plain)

def same(one, two):
    return torch.equal(one.detach().cpu(), two.detach().cpu())
"""

REFUSED = """
before = torch.ones(2, device="hpu")
graph = torch.hpu.HPUGraph()
try:
    with torch.hpu.graph(graph):
        {line}
except Exception as error:
    print(type(error).__name__, error)
print(torch.hpu.is_current_stream_capturing(), (torch.ones(2, device="hpu") + 1).tolist())
"""


@pytest.fixture(scope="module")
def lazy():
    process = LazyProcess()
    yield process
    process.close()


def test_replay_computes_into_the_captured_tensors(lazy):
    assert lazy(
        """
        x = torch.ones(3, device="hpu")
        graph = torch.hpu.HPUGraph()
        with torch.hpu.graph(graph):
            y = x * 2 + 1
        print(y.tolist())
        address = y.data_ptr()
        x.fill_(5)
        graph.replay()
        print(y.tolist(), y.data_ptr() == address)
        """
    ) == ["[3.0, 3.0, 3.0]", "[11.0, 11.0, 11.0] True"]


def test_a_dry_run_executes_nothing_before_the_first_replay(lazy):
    assert lazy(
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


def test_replay_v2_and_v3_fill_the_inputs_first(lazy):
    assert lazy(
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
    ("line", "refusal"),
    [
        ("torch.ones(1, device='hpu').item()", "host"),
        ("before.cpu()", "(aten::copy_)"),
        ("y = before + 1; torch.hpu.synchronize(); y.tolist()", "host"),
        ("before.copy_(torch.zeros(2))", "from the host into a tensor that exists"),
        ("y = before + 1; y.copy_(torch.zeros(2))", "(aten::copy_)"),
        ("torch.ones(3, device='hpu').nonzero()", "data"),
        ("torch.linalg.matrix_rank(torch.eye(3, device='hpu'))", "during hpu graph capturing"),
        ("torch.hpu.HPUGraph().capture_begin()", "GRAPH:: graph Capture already in progress"),
        ("graph.replay()", "GRAPH:: Capture in progress"),
        ("graph.replayV3([torch.ones(1)])", "Mark User Input Sizes is not same"),
        ("torch.hpu.set_stream(torch.hpu.Stream())", "same stream it began on"),
        ("raise ValueError('a mistake of the user')", "ValueError a mistake of the user"),
        (
            "[graph.mark_user_outputs([]) for _ in range(2)]",
            "mark_user_outputs is called more than once",
        ),
    ],
)
def test_a_refused_capture_ends_and_leaves_the_device_usable(lazy, line, refusal):
    said, after = lazy(REFUSED.format(line=line))
    assert refusal in said
    assert after == "False [2.0, 2.0]"


def test_a_fallback_that_a_capture_refuses_is_not_counted(lazy):
    said, before, after = lazy(
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
    assert "cpu fallback is not supported during hpu graph capturing" in said
    assert "_linalg_eigh" in said
    assert before == after


def test_a_graph_whose_capture_was_refused_ends_no_other_capture(lazy):
    assert lazy(
        """
        first, second = torch.hpu.HPUGraph(), torch.hpu.HPUGraph()
        x = torch.ones(2, device="hpu")
        first.capture_begin()
        try:
            x.cpu()
        except RuntimeError:
            pass
        second.capture_begin()
        y = x + 1
        first.capture_end()
        print(torch.hpu.is_current_stream_capturing())
        second.capture_end()
        x.fill_(5)
        second.replay()
        print(y.tolist())
        """
    ) == ["True", "[6.0, 6.0]"]


def test_inputs_are_marked_only_while_capturing(lazy):
    (said,) = lazy(
        """
        try:
            torch.hpu.HPUGraph().mark_user_inputs([])
        except RuntimeError as error:
            print(error)
        """
    )
    assert said == "GRAPH:: mark_user_inputs must be while capturing in progress"


def test_calls_out_of_order_are_refused_and_leave_the_recorder_empty(lazy):
    end, replay, empty, after_reset, left = lazy(
        """
        graph = torch.hpu.HPUGraph()
        x = torch.ones(2, device="hpu")

        def refused(*calls):
            try:
                for call in calls:
                    call()
            except RuntimeError as error:
                print(error)

        refused(graph.capture_end)
        refused(graph.replay)
        refused(graph.capture_begin, lambda: x.t(), graph.capture_end)
        graph.capture_begin()
        y = x + 1
        graph.capture_end()
        graph.replay()
        graph.reset()
        refused(graph.replay)
        from hpu_magic.simulator import engine
        print(engine.load().pending_operations(), torch.hpu.is_current_stream_capturing(), y[0])
        """
    )
    assert end == (
        "GRAPH:: No capture in progress: call capture_begin() of this graph before its "
        "capture_end()."
    )
    assert replay == after_reset
    assert replay.startswith("GRAPH:: Nothing to replay: capture something with this graph first")
    assert empty.startswith("GRAPH:: The capture recorded no operation")
    assert left == "0 False tensor(2., device='hpu:0')"


def test_a_function_that_hands_its_inputs_on_may_be_wrapped(lazy):
    assert lazy(
        """
        same = torch.hpu.wrap_in_hpu_graph(torch.nn.Identity())
        print([same(torch.full((1,), each, device="hpu")).item() for each in (1.0, 2.0)])
        """
    ) == ["[1.0, 2.0]"]


def test_the_host_may_give_a_capture_constants_and_no_new_values(lazy):
    assert lazy(
        """
        x = torch.ones(2, device="hpu")
        graph = torch.hpu.HPUGraph()
        with torch.hpu.graph(graph):
            y = x * torch.tensor([3.0, 4.0], device="hpu")
        x.fill_(2)
        graph.replay()
        print(y.tolist())
        """
    ) == ["[6.0, 8.0]"]


def test_replaying_moves_no_memory(lazy):
    assert lazy(
        """
        x = torch.ones(64, 64, device="hpu")
        graph = torch.hpu.HPUGraph()
        with torch.hpu.graph(graph):
            y = ((x @ x).relu() + 1).sum(0)
        graph.replay()
        torch.hpu.synchronize()
        torch.hpu.reset_peak_memory_stats()
        before = torch.hpu.memory_allocated()
        for _ in range(1000):
            graph.replay()
        stats = torch.hpu.memory_stats()
        print(stats["InUse"] - before)
        del x, y
        graph.reset()
        del graph
        print(torch.hpu.memory_allocated() < before)
        """
    ) == ["0", "True"]


def test_a_replay_computes_convolutions_where_the_captured_tensors_are(lazy):
    assert lazy(
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


def test_a_captured_tensor_that_is_copied_while_graphs_replay_keeps_its_copy(lazy):
    assert lazy(
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


def test_a_wrapped_module_gives_the_modules_results_for_every_kind_of_input(lazy):
    lines = lazy(
        MODEL
        + """
wrapped = torch.hpu.wrap_in_hpu_graph(other.eval())
print(wrapped is other)
with torch.no_grad():
    for rows in (3, 5, 3, 5):
        x = torch.randn(rows, 8, device="hpu")
        kept = x.cpu()
        print(same(wrapped(x), plain(x)), same(x, kept))
    print(same(wrapped(x, bypass_hpu_graphs=True), plain(x)))
    first = wrapped(x)
    print(wrapped(torch.randn(5, 8, device="hpu")) is first)
    wrapped.clear_inputs()
    print(same(wrapped(x), plain(x)))
    wrapped.clear_cache()
    print(same(wrapped(x), plain(x)))
"""
    )
    assert lines == ["True", *4 * ["True True"], *4 * ["True"]]


def test_a_wrapped_function_captures_once_for_each_kind_of_input(lazy):
    lines = lazy(
        """
        calls = []
        def double(x, by=2):
            calls.append(x.shape)
            return {"out": x * by}
        graphed = torch.hpu.wrap_in_hpu_graph_func(double, max_graphs=2)
        for rows in (1, 2, 1, 2, 3, 3):
            out = graphed(torch.ones(rows, device="hpu"))["out"]
            print(out.tolist(), len(calls))
        """
    )
    assert lines == [
        "[2.0] 1",
        "[2.0, 2.0] 2",
        "[2.0] 2",
        "[2.0, 2.0] 2",
        "[2.0, 2.0, 2.0] 3",
        "[2.0, 2.0, 2.0] 4",  # two graphs are the most: the third kind runs without one
    ]


def test_warmup_mode_hands_the_last_results_back_and_runs_only_what_was_recorded(lazy):
    assert lazy(
        """
        calls = []
        class Double(torch.nn.Module):
            def forward(self, x):
                calls.append(x.shape)
                return x * 2
        wrapped = torch.hpu.wrap_in_hpu_graph(Double())
        one, five = torch.ones(2, device="hpu"), torch.full((2,), 5.0, device="hpu")
        print(wrapped(one, warmup_mode=True).tolist(), len(calls))
        first = wrapped(one)
        from hpu_magic.simulator import engine
        waiting = five + 1
        print(engine.load().pending_operations())
        print(wrapped(five, warmup_mode=True) is first)
        print(engine.load().pending_operations(), first.tolist())
        print(wrapped(five).tolist(), len(calls))
        """
    ) == ["[2.0, 2.0] 1", "1", "True", "0 [2.0, 2.0]", "[10.0, 10.0] 1"]


def test_the_cache_key_is_made_of_shapes_views_values_and_autocast(lazy):
    (line,) = lazy(
        """
        from habana_frameworks.torch.hpu.graphs import input_hash
        x = torch.ones(2, 3, device="hpu")
        key = input_hash((x, {"scale": 2}))
        with torch.autocast("hpu"):
            autocast = input_hash((x, {"scale": 2}))
        print([
            key == input_hash((torch.zeros(2, 3, device="hpu"), {"scale": 2})),
            key == input_hash((x.bfloat16(), {"scale": 2})),
            key == input_hash((torch.ones(3, 2, device="hpu").t(), {"scale": 2})),
            key == input_hash((x, {"scale": 3})),
            key == autocast,
        ])
        """
    )
    assert line == "[True, True, False, False, False]"


def test_an_input_of_another_dtype_is_refused_with_both(lazy):
    (line,) = lazy(
        """
        graphed = torch.hpu.wrap_in_hpu_graph_func(lambda x: x + 1)
        graphed(torch.ones(2, device="hpu"))
        try:
            graphed(torch.ones(2, dtype=torch.int32, device="hpu"))
        except RuntimeError as error:
            print(error)
        """
    )
    assert "torch.int32" in line
    assert "torch.float32" in line


def test_graphed_training_equals_plain_training(lazy):
    lines = lazy(
        MODEL
        + """
sample = (torch.randn(4, 8, device="hpu", requires_grad=True),)
graphed = torch.hpu.make_graphed_callables(other, sample, warmups=2)
steps = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (plain, graphed)]
for step in range(4):
    x = torch.randn(4, 8, device="hpu")
    inputs = [x.clone().requires_grad_() for _ in steps]
    for model, given, optimizer in zip((plain, graphed), inputs, steps):
        for _ in range(1 + step % 2):  # sometimes gradients accumulate
            (model(given) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        htcore.mark_step()
print(all(same(*pair) for pair in zip(plain.parameters(), graphed.parameters())))
graphed.eval()
print(same(graphed(torch.ones(9, 8, device="hpu")), plain(torch.ones(9, 8, device="hpu"))))
"""
    )
    assert lines == ["True", "True"]


def test_a_wrong_shape_for_a_graphed_callable_is_refused_with_both(lazy):
    (line,) = lazy(
        MODEL
        + """
graphed = torch.hpu.make_graphed_callables(other, (torch.ones(4, 8, device="hpu"),))
try:
    graphed(torch.ones(5, 8, device="hpu"))
except RuntimeError as error:
    print(error)
"""
    )
    assert "[5, 8]" in line
    assert "[4, 8]" in line


def test_unused_inputs_are_refused_unless_they_are_allowed(lazy):
    lines = lazy(
        """
        def triple(used, unused):
            return used * 3

        def sample():
            return tuple(torch.ones(2, device="hpu", requires_grad=True) for _ in range(2))

        class Scale(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.used = torch.nn.Parameter(torch.ones(1, device="hpu"))
                self.unused = torch.nn.Parameter(torch.ones(1, device="hpu"))
            def forward(self, x):
                return x * self.used

        def graphed(allowed):
            used, unused = sample()
            options = dict(allow_unused_input=allowed)
            function = torch.hpu.make_graphed_callables(triple, sample(), **options)
            function(used, unused).sum().backward()
            print(used.grad.tolist(), unused.grad)

        def cached(allowed):
            model = torch.hpu.ModuleCacher()(Scale(), allow_unused_input=allowed)
            model(torch.ones(2, device="hpu")).sum().backward()
            print(model.used.grad.tolist(), model.unused.grad)

        for train in (graphed, cached):
            try:
                train(False)
            except RuntimeError as error:
                said = "not have been used in the graph" in str(error)
                print(said, torch.hpu.is_current_stream_capturing())
            train(True)
        """
    )
    assert lines == ["True False", "[3.0, 3.0] None", "True False", "[2.0] None"]


def test_what_cannot_be_graphed_is_an_assertion_error(lazy):
    lines = lazy(
        MODEL
        + """
def refused(callable, sample):
    try:
        torch.hpu.make_graphed_callables(callable, sample)
    except AssertionError as error:
        print(error)

refused(plain, [torch.ones(4, 8)])
refused(plain, (3,))
plain.register_forward_hook(lambda *_: None)
refused(plain, (torch.ones(4, 8, device="hpu"),))
other.register_buffer("scale", torch.ones(1, device="hpu", requires_grad=True))
refused(other, (torch.ones(4, 8, device="hpu"),))
"""
    )
    assert [line.split(":")[0] for line in lines] == [
        "sample_args must be a tuple of tensors for each callable",
        "sample_args must be a tuple of tensors for each callable",
        "Sequential has hooks",
        "A buffer of Sequential requires a gradient",
    ]


def test_module_cacher_trains_as_the_plain_model_and_evicts_the_least_used(lazy):
    lines = lazy(
        MODEL
        + """
cached = torch.hpu.ModuleCacher(max_graphs=2)(other, use_lfu=True, verbose=True, log_frequency=8)
steps = [torch.optim.Adam(model.parameters()) for model in (plain, cached)]
for rows in (3, 4, 3, 4, 3, 5, 3, 5):
    x = torch.randn(rows, 8, device="hpu")
    for model, optimizer in zip((plain, cached), steps):
        (model(x) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
print(all(same(*pair) for pair in zip(plain.parameters(), cached.parameters())))
cached.eval()
print(same(cached(x), plain(x)))
"""
    )
    assert lines == [
        "HPU Graphs of Sequential: 8 calls, 5 replayed, 3 captured, 0 run without a graph",
        "True",
        "True",
    ]


def test_module_cacher_captures_only_between_capture_start_and_capture_end(lazy):
    lines = lazy(
        """
        calls = []
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.full((1,), 3.0, device="hpu"))
            def forward(self, x):
                calls.append(len(x))
                return x * self.weight
        model = torch.hpu.ModuleCacher()(Model())

        def run(*sizes):
            calls.clear()
            results = [model(torch.ones(size, device="hpu")).tolist() for size in sizes]
            print(calls, results == [[3.0] * size for size in sizes], model.is_hpugraph_tracing())

        run(1, 1)
        model.capture_end()
        run(1, 2, 2)
        model.capture_start()
        run(1, 2, 2)
        """
    )
    assert lines == ["[1] True True", "[2, 2] True False", "[2] True True"]


def test_module_cacher_runs_each_batch_once(lazy):
    lines = lazy(
        """
        import copy
        from torch import nn
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)).to("hpu")
        cached = torch.hpu.ModuleCacher()(copy.deepcopy(plain), inplace=False)
        for _ in range(3):
            x = torch.randn(8, 4, device="hpu")
            outputs = []
            for model in (plain, cached):
                torch.manual_seed(1)
                outputs.append(model(x).tolist())
            print(outputs[0] == outputs[1])
        print([model[1].num_batches_tracked.item() for model in (plain, cached)])
        """
    )
    assert lines == ["True", "True", "True", "[3, 3]"]


def test_a_backward_that_a_later_forward_has_overwritten_is_refused(lazy):
    (line,) = lazy(
        MODEL
        + """
cached = torch.hpu.ModuleCacher()(other)
x = torch.ones(3, 8, device="hpu")
first, second = cached(x).sum(), cached(x).sum()
second.backward()
try:
    first.backward()
except RuntimeError as error:
    print(error)
"""
    )
    assert "call backward() before the next forward" in line


def test_module_cacher_wants_named_arguments(lazy):
    (line,) = lazy(
        """
        class Model(torch.nn.Module):
            def forward(self, *parts):
                return parts[0]
        try:
            torch.hpu.ModuleCacher()(Model())
        except TypeError as error:
            print(error)
        """
    )
    assert line.startswith("Model.forward takes *parts without a name")


def test_step_closures_run_once_after_the_next_mark(lazy):
    assert lazy(
        """
        x = torch.zeros(1, device="hpu")
        htcore.add_step_closure(lambda text: print(text, x.item()), ("then",))
        htcore.add_step_closure(lambda: 1 / 0)
        htcore.add_step_closure(print, ("last",))
        x += 1
        print("before")
        htcore.mark_step()
        htcore.mark_step()
        """
    ) == ["before", "then 1.0", "last"]


def test_a_step_closure_that_raises_is_logged_with_its_name_and_traceback(lazy):
    first, *traceback, last = lazy(
        """
        import io, logging
        text = io.StringIO()
        handler = logging.StreamHandler(text)
        logger = logging.getLogger("habana_frameworks.torch")
        logger.addHandler(handler)
        def report(loss):
            raise ValueError(f"the loss is {loss}")
        htcore.add_step_closure(report, (7,))
        htcore.mark_step()
        logger.removeHandler(handler)
        print(text.getvalue().strip())
        """
    )
    assert first == "The step closure report failed"
    assert any('"cell.py", line 8, in report' in line for line in traceback)
    assert last == "ValueError: the loss is 7"


def test_in_eager_mode_graphs_are_refused_in_a_sentence(torch):
    for use in (
        torch.hpu.HPUGraph,
        lambda: torch.hpu.wrap_in_hpu_graph(torch.nn.Linear(1, 1)),
        lambda: torch.hpu.make_graphed_callables(torch.sin, (torch.ones(1, device="hpu"),)),
    ):
        with pytest.raises(RuntimeError, match=r"lazy mode only: set PT_HPU_LAZY_MODE=1 before"):
            use()
    assert not torch.hpu.is_current_stream_capturing()


def test_in_eager_mode_module_cacher_leaves_the_model_as_it_is(torch):
    model = torch.nn.Linear(2, 1).to("hpu")
    x = torch.ones(3, 2, device="hpu")
    expected = model(x)
    assert torch.equal(torch.hpu.ModuleCacher()(model)(x), expected)
