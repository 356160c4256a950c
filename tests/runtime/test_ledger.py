"""Test %hpu_ledger and hpu_magic.ledger."""

import inspect
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import hpu_magic
from hpu_magic import units
from hpu_magic.runtime.measure.ledger import Ledger


@pytest.fixture
def on(run, shell, torch):
    """Turn on the ledger, with a tensor `x` on the device, and return `run`."""
    shell.user_ns["x"] = torch.ones(256, 4, device="hpu")
    run("%hpu_ledger on")
    return run


def test_cell_without_device_work_prints_no_line(on):
    assert on("number = 3").out == ""
    assert on("%hpu_ledger on").out == (
        "The ledger is on: cells that use the device show a line with their overhead.\n"
    )


def test_cell_with_device_work_prints_one_line_with_the_peak(on, torch, own_card):
    peak = units.size(torch.hpu.memory_allocated() + 4096)
    cell = on("y = x + 1")
    [line] = cell.out.splitlines()
    assert line.startswith(f"{own_card}: ")
    assert f"peak {peak}" in line


def test_displaying_a_tensor_counts_as_a_synchronization_of_its_cell(on):
    for source, line in (("x[:2]", 1), ("y = 1\n\nprint(x[:2])", 3), ("display(x[:2])", 1)):
        cell = on(source)
        assert re.search(rf"\d host synchronizations \(line {line}[;)]", cell.out), cell.out
        assert {entry.where for entry in on("%hpu_ledger last").result.entries} == {f"line {line}"}


def test_synchronizations_are_counted_per_source_line(on):
    cell = on("y = x + 1\nfor _ in range(3):\n    value = y.sum().item()")
    assert "3 host synchronizations (line 3)" in cell.out
    entries = on("%hpu_ledger last").result.entries
    [entry] = [entry for entry in entries if entry.kind == "host synchronization"]
    assert (entry.count, entry.where) == (3, "line 3")


def test_causes_in_the_same_line_are_listed_once(on):
    cell = on("y = x.sum().item() + x.cpu().sum()\nz = x.max().item()")
    assert "(line 1; and 1 more)" in cell.out
    assert "(line 1)" in on("y = x.sum().item() + x.cpu().sum()").out


def test_line_inside_a_function_names_the_cell_that_defines_it(on, shell):
    on("def read(value):\n    return value.sum().item()")
    number = shell.execution_count - 1
    assert f"1 host synchronization (In [{number}], line 2)" in on("read(x)").out


def test_last_returns_the_latest_cell_that_used_the_device(on):
    on("y = x.sum().item()")
    on("number = 3")
    report = on("costs = %hpu_ledger last\ncosts").result
    assert report.synchronizations == 1
    assert report.peak >= 4096
    assert report.compilations == 0


def test_line_in_a_notebook_expands_to_the_table(on):
    from hpu_magic.runtime.measure.ledger_report import LedgerLine

    on("y = x.sum().item()")
    html = LedgerLine(on("%hpu_ledger last").result)._repr_html_()
    assert html.startswith("<details")
    assert html.index("host synchronization") < html.index("<table>")


def test_failed_cell_still_prints_its_line(on):
    cell = on("y = x + 1\n1 / 0")
    assert isinstance(cell.error, ZeroDivisionError)
    assert "peak" in cell.out.splitlines()[-1]


def test_last_without_a_measured_cell_does_not_import_torch(script):
    out = script(
        """
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_line_magic("load_ext", "hpu_magic")
        shell.run_cell("%hpu_ledger last")
        import sys
        print("torch" in sys.modules)
        """
    )
    assert out.splitlines()[-1] == "False"


def test_unknown_argument_is_rejected(rejected):
    assert "needs on, off or last, not 'maybe'" in rejected("%hpu_ledger maybe")


def test_line_names_operator_and_line_of_a_cpu_fallback(on, torch):
    cell = on("import torch\n\neigenvalues = torch.linalg.eigvalsh(x.T @ x)")
    assert "1 CPU fallback (aten::" in cell.out
    assert "line 3" in cell.out
    assert sum(on("%hpu_ledger last").result.fallbacks.values()) == 1


def test_context_manager_measures_a_block(torch):
    x = torch.ones(3, device="hpu")
    with hpu_magic.ledger() as costs:
        x.sum().item()
    assert costs.touched
    assert costs.synchronizations == 1
    assert costs.entries[0].where.startswith("test_ledger.py, line ")
    with hpu_magic.ledger() as idle:
        pass
    assert not idle.touched
    assert "was not used" in repr(idle)


def test_compilation_is_reported_once_with_its_shapes(lazy):
    lazy("%hpu_ledger on\nlayer = nn.Linear(4, 2).to('hpu')")
    run = "layer(torch.ones({rows}, 4).to('hpu'))\nhtcore.mark_step()"
    first = lazy(run.format(rows=5))
    assert "1 graph compiled in" in first.text
    assert "5, 4" in first.text
    assert "compiled" not in lazy(run.format(rows=5)).text.replace("nothing compiled", "")
    assert "1 graph compiled in" in lazy(run.format(rows=6)).text


def test_each_new_shape_is_one_compilation_and_one_table_row(lazy):
    lazy("%hpu_ledger on\nlayer = nn.Linear(3, 2).to('hpu')")
    answer = lazy(
        "for rows in (31, 32, 33):\n    layer(torch.ones(rows, 3).to('hpu'))\n"
        "    htcore.mark_step()"
    )
    assert "3 graphs compiled in" in answer.text
    assert "([31, 3], [32, 3], [33, 3], line 3)" in answer.text
    lazy("report = get_ipython().run_line_magic('hpu_ledger', 'last')")
    assert lazy.value("[report.compilations, len(report.lines())]") == [3, 3]


def test_compilations_become_marks_in_the_sampler(lazy):
    lazy(
        "from hpu_magic.runtime.training.sampler import Sampler\nsampler = Sampler()\n"
        "x = torch.ones(41).to('hpu')\nsampler.sample()\n"
        "y = x * 3\nhtcore.mark_step()\nsampler.sample()"
    )
    [text] = lazy.value("[mark.text for mark in sampler.marks()[0]]")
    assert text.startswith("1 graph compiled in ")


def test_synchronization_count_is_none_until_the_device_reports_one(forked_script):
    out = forked_script(
        """
        import torch
        import hpu_magic
        x = torch.ones(3, device="hpu")
        for read in (False, True, False):
            with hpu_magic.ledger() as costs:
                y = x.sum()
                if read:
                    y.item()
            print(costs.synchronizations)
        """,
        simulated=True,
    )
    assert out.splitlines()[-3:] == ["None", "1", "0"]


def test_rerun_of_a_compiled_in_place_graph_counts_as_device_use(lazy):
    lazy("%hpu_ledger off\nimport hpu_magic\nx = torch.ones(41, device='hpu')")
    lazy("htcore.mark_step()")
    lazy("x.add_(1)\nhtcore.mark_step()")
    lazy("with hpu_magic.ledger() as costs:\n    x.add_(1)\n    htcore.mark_step()")
    assert lazy.value("[costs.touched, costs.compilations]") == [True, 0]
    lazy("with hpu_magic.ledger() as idle:\n    htcore.mark_step()")
    assert lazy.value("idle.touched") is False


def test_in_place_operation_counts_as_device_use(on):
    assert "nothing compiled; peak" in on("x.add_(1);").out
    assert on("shape = x.shape").out == ""


@pytest.mark.parametrize(
    "holder",
    ["[x]", "{'a': x}", "module", "optimizer"],
    ids=["list", "dict", "module", "optimizer"],
)
def test_in_place_writes_are_found_in_containers_and_modules(torch, holder):
    module = torch.nn.Linear(2, 2).to("hpu")
    x = module.weight
    optimizer = torch.optim.SGD([x], lr=0.1)
    held = eval(holder, {"x": x, "module": module, "optimizer": optimizer})
    with Ledger(namespace={"held": held}) as costs, torch.no_grad():
        x.add_(1)
    assert costs.touched
    with Ledger(namespace={"held": held}) as idle:
        pass
    assert not idle.touched


class _Hostile:
    """An object whose attributes must not be read."""

    def __getattribute__(self, name):
        raise ValueError(name)


def test_objects_that_raise_on_access_are_ignored(torch):
    class Broken(torch.nn.Module):
        def parameters(self, recurse=True):
            raise ValueError("no parameters")

    class Meta(type):
        __hash__ = None

    class Unhashable(metaclass=Meta):
        pass

    with torch.inference_mode():
        made_for_inference = torch.ones(3, device="hpu")
    shrunk = torch.ones(3, device="hpu")
    shrunk.untyped_storage().resize_(0)
    x = torch.ones(3, device="hpu")
    values = [_Hostile(), Broken(), Unhashable(), made_for_inference, shrunk, x]
    namespace = {**{str(number): value for number, value in enumerate(values)}, "all": values}
    with Ledger(namespace=namespace) as costs:
        x.add_(1)
    assert costs.touched


def test_ledger_keeps_no_tensor_alive(torch):
    namespace = {"x": torch.ones(1000, device="hpu")}
    before = torch.hpu.memory_allocated()
    with Ledger(namespace=namespace):
        del namespace["x"]
        assert torch.hpu.memory_allocated() <= before - 4000


def test_line_shows_reason_and_source_line_of_a_graph_break(on, compile_on_hpu):
    on("import torch")
    on(
        "@torch.compile(backend='hpu_backend')\n"
        "def step(v):\n"
        "    v = v * 2\n"
        "    torch._dynamo.graph_break()\n"
        "    return v + 1\n"
        "y = step(x)"
    )
    report = on("%hpu_ledger last").result
    assert report.graph_breaks == 1
    assert re.search(r"; 1 graph break \(.*graph_break.*, line 4\)", report.title())
    assert [entry.kind for entry in report.entries].count("graph break") == 1
    assert "graph break" not in on("y = step(x)").out


def test_branch_on_a_tensor_value_is_reported_as_a_graph_break(torch, compile_on_hpu):
    def step(v):
        if v.sum() > 0:
            v = v + 1
        return v

    x = torch.ones(3, device="hpu")
    with hpu_magic.ledger() as costs:
        compile_on_hpu(step)(x)
    [entry] = [entry for entry in costs.entries if entry.kind == "graph break"]
    assert (entry.name, entry.count) == ("Data-dependent branching", 1)
    line = step.__code__.co_firstlineno + 1
    assert entry.where == f"test_ledger.py, line {line}"


def test_function_that_dynamo_skips_because_of_a_break_is_reported(torch, compile_on_hpu):
    from torch._dynamo import exc, symbolic_convert

    only_logged = "Skipping frame because there is a graph break"
    if any(only_logged in inspect.getsource(module) for module in (exc, symbolic_convert)):
        pytest.skip("this release of PyTorch does not record skipped functions")

    def step(v):
        for _ in range(2):
            torch._dynamo.graph_break()
            v = v * 2
        return v

    x = torch.ones(3, device="hpu")
    with hpu_magic.ledger() as costs:
        compile_on_hpu(step)(x)
    assert (costs.compilations, costs.graph_breaks) == (0, 1)
    line = step.__code__.co_firstlineno
    [entry] = [entry for entry in costs.entries if entry.kind == "graph break"]
    assert entry.name == "Call to `torch._dynamo.graph_break()`; not compiled"
    assert entry.where == f"test_ledger.py, line {line}"


@pytest.fixture
def breaks(torch):
    """A function with one graph break."""

    def step(v):
        torch._dynamo.graph_break()
        return v + 1

    return step


def test_graph_breaks_survive_a_reset_of_dynamo(torch, compile_on_hpu, breaks):
    x = torch.ones(3, device="hpu")
    with hpu_magic.ledger() as costs:
        compile_on_hpu(breaks)(x)
        torch._dynamo.reset()
    assert costs.graph_breaks == 1
    assert re.search(r"; 1 graph break \(.*graph_break", costs.title())


def test_graph_break_on_the_cpu_does_not_count_as_device_use(torch, breaks):
    with hpu_magic.ledger() as costs:
        torch.compile(breaks, backend="eager")(torch.ones(3))
    assert costs.graph_breaks == 1
    assert not costs.touched


class _Graph:
    """A class like the vendor's, whose replay methods call each other."""

    def replay(self, asynchronous=False):
        if asynchronous:
            raise RuntimeError("refused")

    def replayV2(self, static_tlist, tlist, asynchronous=False):
        self.replay(asynchronous)


class _OwnGraph(_Graph):
    def replayV3(self, tlist, asynchronous=False):
        self.replayV2([], tlist, asynchronous)


def test_each_replay_is_counted_once_for_every_replay_method(torch, monkeypatch):
    monkeypatch.setattr(torch.hpu, "HPUGraph", _OwnGraph)
    before = dict(vars(_OwnGraph))
    graph = _OwnGraph()
    with hpu_magic.ledger() as outer:
        graph.replayV3([])
        with hpu_magic.ledger() as inner:
            graph.replay()
            graph.replayV2([], [])
        with pytest.raises(RuntimeError, match="refused"):
            graph.replay(True)
        graph.replay()
    assert (outer.replays, inner.replays) == (4, 2)
    assert dict(vars(_OwnGraph)) == before
    assert "replay" not in vars(_OwnGraph)
    with hpu_magic.ledger() as idle:
        pass
    assert not idle.touched


def test_replays_in_several_threads_are_counted(torch, monkeypatch):
    monkeypatch.setattr(torch.hpu, "HPUGraph", _OwnGraph)
    graph = _OwnGraph()
    with hpu_magic.ledger() as costs, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: graph.replayV3([]), range(800)))
    assert costs.replays == 800


def test_method_that_was_replaced_meanwhile_is_kept(torch, monkeypatch):
    monkeypatch.setattr(torch.hpu, "HPUGraph", _OwnGraph)

    def own(self):
        return "own"

    with hpu_magic.ledger():
        monkeypatch.setattr(_OwnGraph, "replay", own)
    assert vars(_OwnGraph)["replay"] is own
    monkeypatch.undo()


def test_graph_class_that_cannot_be_patched_is_left_alone(torch, monkeypatch):
    monkeypatch.setattr(torch.hpu, "HPUGraph", int)
    monkeypatch.setattr("hpu_magic.runtime.graphs.replays._METHODS", ("bit_length",))
    with hpu_magic.ledger() as costs:
        assert (5).bit_length() == 3
    assert costs.replays == 0


def test_cell_that_only_replays_a_graph_prints_a_line(lazy):
    lazy("%hpu_ledger off\nx = torch.ones(43, device='hpu')\nlayer = nn.Tanh()")
    lazy("%%hpu_capture again --inputs x\ny = x * 2 + 1")
    lazy("%hpu_ledger on")
    answer = lazy("%hpu_replay again -n 100")
    assert "100 graph replays; peak" in answer.text
    assert "compiled" not in answer.text
    assert "graph replay" not in lazy("number = 3").text


@pytest.mark.parametrize(
    ("call", "replays"),
    [
        ("wrapped(x)", 1),
        ("graphed(z).sum().backward()", 2),
        ("cached(z).sum().backward()", 2),
    ],
)
def test_replays_of_wrapped_models_are_counted(lazy, call, replays):
    lazy(
        "import hpu_magic\nfrom habana_frameworks.torch import hpu\n"
        "x = torch.ones(2, 3, device='hpu')\nz = x.clone().requires_grad_()\n"
        "build = lambda: nn.Linear(3, 2).to('hpu')\n"
        "wrapped = hpu.wrap_in_hpu_graph(build().eval())\n"
        "graphed = hpu.make_graphed_callables(build(), (z,))\n"
        "cached = hpu.ModuleCacher()(build())"
    )
    lazy(f"with torch.set_grad_enabled({replays} == 2):\n    {call}")
    answer = lazy(
        f"with torch.set_grad_enabled({replays} == 2), hpu_magic.ledger() as costs:\n    {call}"
    )
    assert not answer.error
    assert lazy.value("costs.replays") == replays


def test_ledger_does_not_execute_pending_lazy_operations(lazy):
    lazy("%hpu_ledger off\nimport hpu_magic\na = torch.ones(44, device='hpu')\nhtcore.mark_step()")
    lazy("b = a * 3")
    lazy("with hpu_magic.ledger() as costs:\n    pass")
    assert lazy.value("[costs.touched, costs.compilations]") == [False, 0]


def test_inner_ledger_does_not_reset_the_peak_of_the_outer_one(torch):
    x = torch.ones(1, device="hpu")
    base = torch.hpu.memory_allocated()
    with hpu_magic.ledger() as outer:
        torch.ones(1 << 20, device="hpu")
        with hpu_magic.ledger() as inner:
            x + 1
        torch.ones(1 << 10, device="hpu")
    assert outer.peak - base == 4 << 20
    assert inner.peak - base < 1 << 10


def test_memory_cell_does_not_reset_the_peak_of_the_ledger(on, shell, torch):
    used = torch.hpu.memory_allocated()
    on(
        "import torch\ntorch.ones(1 << 20, device='hpu').sum().item()\n"
        "get_ipython().run_cell_magic('hpu_memory', '-o inner', 'y = x + 1')"
    )
    peak = on("%hpu_ledger last").result.peak
    assert peak - used >= 4 << 20
    assert shell.user_ns["inner"].peak - used < 1 << 20


def test_ledger_does_not_reset_the_peak_of_a_memory_cell(run, shell, torch):
    shell.user_ns.update(torch=torch, hpu_magic=hpu_magic, x=torch.ones(1, device="hpu"))
    run(
        "%%hpu_memory -o outer\ntorch.ones(1 << 20, device='hpu').sum().item()\n"
        "with hpu_magic.ledger() as inner:\n    x + 1"
    )
    outer, inner = shell.user_ns["outer"], shell.user_ns["inner"]
    assert outer.peak - outer.before >= 4 << 20
    assert inner.peak - outer.before < 1 << 20


def test_reused_ledger_starts_with_empty_counts(torch):
    ledger = hpu_magic.ledger()
    with ledger as first:
        torch.ones(3, device="hpu").sum().item()
    with ledger as second:
        pass
    assert (first.touched, len(first.entries)) == (True, 1)
    assert (second.touched, second.entries) == (False, [])


def test_off_ends_the_measurement_of_a_cell_in_another_thread(on, shell, torch):
    class Graph(_Graph):
        pass

    plain = dict(vars(Graph))
    started, go_on = threading.Event(), threading.Event()
    shell.user_ns.update(started=started, go_on=go_on)
    cell = threading.Thread(target=shell.run_cell, args=("started.set(); waited = go_on.wait(30)",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.hpu, "HPUGraph", Graph)
        cell.start()
        assert started.wait(30)
        assert dict(vars(Graph)) != plain
        on("%hpu_ledger off")
        assert dict(vars(Graph)) == plain
        go_on.set()
        cell.join()
    assert shell.user_ns["waited"]
    assert on("y = x + 1").out == ""


def test_without_argument_the_state_is_shown(run, torch):
    off = run("%hpu_ledger")
    assert not off.result.on
    assert "is off." in off.out
    assert "%hpu_ledger on shows" in off.out
    run("%hpu_ledger on")
    run("import torch; x = torch.ones(3, device='hpu')")
    on = run("%hpu_ledger")
    assert on.result.on
    assert "is on." in on.out
    assert on.result.last.title() in on.out
    assert "%hpu_ledger off switches it off." in on.out
    run("%hpu_ledger off")
    assert "is off." in run("%hpu_ledger").out
