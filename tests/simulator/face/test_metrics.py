"""Test metrics and their files, events, and profiler traces."""

import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from habana_frameworks.torch import activity_profiler
from habana_frameworks.torch.hpu import metrics
from habana_frameworks.torch.hpu.metrics import metric_localcontext, metrics_dump
from habana_frameworks.torch.utils import debug
from habana_frameworks.torch.utils.event_dispatcher import EventDispatcher, EventId
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

FALLBACK = "torch.linalg.lstsq(torch.eye(2, device='hpu'), torch.eye(2, device='hpu'))"


def test_only_new_shapes_are_compiled(lazy_process):
    assert lazy_process(
        """
        from habana_frameworks.torch.hpu.metrics import metric_localcontext

        def step(rows):
            with metric_localcontext("graph_compilation") as metric:
                x = torch.ones(rows, 7, device="hpu")
                ((x @ x.t()).relu() + 1).sum()
                htcore.mark_step()
            return dict(metric.stats())

        print([step(rows)["TotalNumber"] for rows in (3, 3, 4, 3, 4)])
        print(step(6)["TotalTime"] > 0)
        """
    ) == ["[1, 0, 1, 0, 0]", "True"]


def test_progress_of_the_device_includes_recorded_operations(lazy_process):
    assert lazy_process(
        """
        from hpu_magic.simulator import engine
        x = torch.ones(2, device="hpu")

        def left(wait):
            y = x + 1
            wait()
            return engine.load().pending_operations()

        event, stream = torch.hpu.Event(enable_timing=True), torch.hpu.Stream()
        print(left(event.record), left(torch.Event("hpu").record), left(stream.synchronize))
        print(left(lambda: torch.hpu.set_stream(torch.hpu.default_stream())))
        with torch.hpu.stream(stream):
            print(engine.load().pending_operations())
        print(left(torch.accelerator.synchronize))
        """
    ) == ["0 0 0", "1", "0", "0"]


def test_events_report_an_acquired_card_and_a_full_card(forked_script):
    out = forked_script(
        """
        import torch
        from habana_frameworks.torch.hpu.metrics import metric_global
        from habana_frameworks.torch.utils.event_dispatcher import EventDispatcher, EventId
        dispatcher, seen = EventDispatcher.instance(), []
        kinds = [EventId.DEVICE_ACQUIRED, EventId.MEMORY_DEFRAGMENTATION]
        handles = [dispatcher.subscribe(kind) for kind in kinds]

        def names():
            for handle in handles:
                dispatcher.process(handle, lambda time, facts: seen.append(dict(facts)["name"]))
            return seen

        print(names())
        torch.ones(2, device="hpu") + 1
        print(names())
        for _ in range(2):
            try:
                torch.ones(1 << 20, device="hpu")
            except RuntimeError as error:
                print("Allocation failed" in str(error))
        print(names())
        numbers = dict(metric_global("memory_defragmentation").stats())
        print(numbers["TotalNumber"], numbers["TotalSuccessful"])
        print(0 < numbers["AvgTime"] <= numbers["MaxTime"])
        """,
        simulated=True,
        HPU_MAGIC_MEMORY="1MiB",
        PT_HPU_LAZY_MODE="0",
    )
    assert out.splitlines() == [
        "[]",
        "['hpu:0']",
        "True",
        "True",
        "['hpu:0', 'failed', 'failed']",
        "2 0",
        "True",
    ]


@pytest.mark.parametrize("limit", ["PT_HPU_MAX_COMPOUND_OP_SIZE", "PT_HPU_MAX_ACCUM_SIZE"])
def test_full_graph_runs_automatically(forked_script, limit):
    out = forked_script(
        """
        import torch
        import habana_frameworks.torch.core as htcore
        from habana_frameworks.torch.hpu.metrics import metric_localcontext
        x = torch.zeros(3, device="hpu")
        htcore.mark_step()
        for additions in (3, 4, 9):
            with metric_localcontext("graph_compilation") as metric:
                for _ in range(additions):
                    x = x + 1
                print(dict(metric.stats())["TotalNumber"])
            htcore.mark_step()
        print(x.tolist())
        """,
        simulated=True,
        PT_HPU_LAZY_MODE="1",
        **{limit: "4"},
    )
    # Three operations wait for the mark, four fill a graph, and nine fill a cached graph.
    assert out.splitlines() == ["0", "1", "0", "[16.0, 16.0, 16.0]"]


def test_mark_of_an_iteration_runs_only_closures(lazy_process):
    assert lazy_process(
        """
        from hpu_magic.simulator import engine
        x = torch.ones(2, device="hpu") + 1
        htcore.add_step_closure(print, ("closure",))
        htcore.iter_mark_step()
        print(engine.load().pending_operations() > 0)
        print(x.tolist())
        """
    ) == ["closure", "True", "[2.0, 2.0]"]


@pytest.fixture(scope="module")
def reported(forked_script, tmp_path_factory):
    """Run a process of rank 3 with all metrics enabled; return its folder and output."""
    folder = tmp_path_factory.mktemp("metrics")
    out = forked_script(
        """
        import torch
        import habana_frameworks.torch.core as htcore
        from habana_frameworks.torch.hpu.metrics import metric_global
        for rows in (2, 2, 2, 3):
            torch.ones(rows, device="hpu") + 1
            htcore.mark_step()
        stats = dict(metric_global("recipe_cache").stats())
        print(stats["TotalHit"], stats["TotalMiss"])
        print(list(stats["RecipeHit"].values()), list(stats["RecipeMiss"].values()))
        """,
        simulated=True,
        PT_HPU_LAZY_MODE="1",
        PT_HPU_ENABLE_CACHE_METRICS="1",
        PT_HPU_METRICS_GC_DETAILS="1",
        PT_HPU_METRICS_FILE=str(folder / "metrics.json"),
        RANK="3",
        WORLD_SIZE="4",
    )
    return folder, out.splitlines()


def test_recipe_cache_is_counted_on_request(reported):
    _, lines = reported
    assert lines == ["2 2", "[2] [1, 1]"]


def test_single_compilations_are_listed_on_request(reported):
    folder, _ = reported
    records = json.loads((folder / "metrics-rank3.json").read_text())
    [compilation] = [each for each in records if each["metric_name"] == "graph_compilation"]
    statistics = compilation["statistics"]
    recipes = dict(statistics["Recipes"])
    assert len(recipes) == len(statistics["Recipes"]) == statistics["TotalNumber"] == 2
    assert all(name and duration > 0 for name, duration in recipes.items())
    assert sum(recipes.values()) == pytest.approx(statistics["TotalTime"], abs=100)


@pytest.mark.parametrize(
    ("file", "environment", "written"),
    [
        ("m.json", {"RANK": "0"}, "m-rank0.json"),
        ("m.tar.json", {"OMPI_COMM_WORLD_RANK": "2"}, "m.tar-rank2.json"),
        ("m", {"RANK": "1"}, "m-rank1"),
        ("m.json", {"WORLD_SIZE": "4"}, "m.json"),
    ],
    ids=["RANK", "MPI", "no suffix", "no rank"],
)
def test_file_name_contains_the_rank_and_files_are_not_overwritten(
    forked_script, tmp_path, file, environment, written
):
    folder = tmp_path / "made.by" / "the bridge"
    for _ in range(3):
        forked_script(
            """
            import torch
            from habana_frameworks.torch.hpu.metrics import metrics_dump
            torch.ones(1, device="hpu")
            """,
            simulated=True,
            PT_HPU_METRICS_FILE=str(folder / file),
            **environment,
        )
    assert sorted(each.name for each in folder.iterdir()) == [
        written,
        f"{written}.1",
        f"{written}.2",
    ]
    for each in folder.iterdir():
        records = json.loads(each.read_text())
        assert [set(record) for record in records] == [
            {"metric_name", "triggered_by", "generated_on", "statistics"}
        ] * 3
        assert {record["triggered_by"] for record in records} == {"process_exit"}


def test_simultaneous_processes_use_different_file_names(tmp_path):
    torch.ones(1, device="hpu")
    target, elsewhere = tmp_path / "metrics.json", tmp_path / "elsewhere"
    target.symlink_to(elsewhere)  # the name exists, but not its target
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(metrics_dump, [str(target)] * 8))
    assert not elsewhere.exists()
    written = [tmp_path / f"metrics.json.{number}" for number in range(1, 9)]
    assert sorted(tmp_path.iterdir()) == [target, *written]
    assert [len(json.loads(each.read_text())) for each in written] == [3] * 8


MANY_RECIPES = """
    import torch
    from habana_frameworks.torch.core import mark_step
    from habana_frameworks.torch.hpu.metrics import metric_global
    from hpu_magic.simulator import engine

    def totals():
        stats = dict(metric_global("recipe_cache").stats())
        for kind in ("Hit", "Miss"):
            assert sum(stats[f"Recipe{kind}"].values()) == stats[f"Total{kind}"]
        return stats["TotalHit"], stats["TotalMiss"]

    x = torch.ones(1 << 14 | 1, device="hpu")
    mark_step()
    hits, misses = totals()

    def run(place):  # each place in memory has a separate graph
        x[place : place + 1].neg_()
        mark_step()

    for place in (*range(1 << 14), 0, 1 << 14, 0, 1):
        run(place)
    after = totals()
    print(after[0] - hits, after[1] - misses, engine.load().recipe_count())
    print(len(dict(metric_global("recipe_cache").stats())["RecipeMiss"]))
"""


def test_number_of_stored_graphs_and_names_is_limited(forked_script):
    flags = {"PT_HPU_LAZY_MODE": "1", "PT_HPU_ENABLE_CACHE_METRICS": "1"}
    counted, names = forked_script(MANY_RECIPES, simulated=True, **flags).splitlines()
    # The first graph, which was reused, and the last graphs are cached; the second one is not.
    assert counted == f"2 {(1 << 14) + 2} {1 << 14}"
    assert names == f"{4096 + 1}"


def test_recipe_cache_needs_its_flag():
    assert metrics.metric_global("recipe_cache") is None
    with (
        pytest.raises(metrics.MetricNotFound, match="use graph_compilation"),
        metrics.metric_localcontext("recipe_cache"),
    ):
        pass


def test_fallbacks_are_counted_by_operator_globally_and_inside_a_block():
    overall = metrics.metric_global("cpu_fallback")
    before = dict(overall.stats())["TotalNumber"]
    eval(FALLBACK)
    with metrics.metric_localcontext("cpu_fallback") as inside:
        eval(FALLBACK)
    eval(FALLBACK)
    stats = dict(inside.stats())
    ((operator, count),) = stats["FallbackOps"].items()
    assert (stats["TotalNumber"], count) == (1, 1)
    assert operator.startswith("aten::linalg_lstsq")
    assert dict(overall.stats())["TotalNumber"] == before + 3
    assert debug._get_fallback_op_count()[operator] >= 3


def test_stopped_metric_continues_after_start():
    with metric_localcontext("cpu_fallback") as metric:
        metric.stop()
        eval(FALLBACK)
        assert dict(metric.stats())["TotalNumber"] == 0
        metric.start()
        eval(FALLBACK)
        assert dict(metric.stats())["TotalNumber"] == 1
        metric.reset()
        assert metric.stats() == [("TotalNumber", 0), ("FallbackOps", {})]
        assert metric.name() == "cpu_fallback"


def test_event_contains_the_line_that_caused_it():
    dispatcher = EventDispatcher.instance()
    handle = dispatcher.subscribe(EventId.CPU_FALLBACK)
    seen = []
    torch.linalg.lstsq(torch.eye(2, device="hpu"), torch.eye(2, device="hpu"))
    dispatcher.process(handle, lambda timestamp, parameters: seen.append(dict(parameters)))
    dispatcher.process(handle, lambda *event: seen.append(event))  # no event is delivered twice
    dispatcher.unsubscribe(handle)
    (event,) = seen
    assert event["name"].startswith("aten::linalg_lstsq")
    assert event["file"] == __file__
    with open(__file__) as source:
        assert "torch.linalg.lstsq(torch.eye" in source.readlines()[int(event["line"]) - 1]


def test_subscriber_is_called_although_another_one_fails(caplog):
    dispatcher = EventDispatcher.instance()
    called = threading.Event()
    handles = [
        dispatcher.subscribe(EventId.CPU_FALLBACK, lambda *_: 1 / 0),
        dispatcher.subscribe(EventId.CPU_FALLBACK, lambda *_: called.set()),
    ]
    eval(FALLBACK)
    assert called.wait(100)
    for handle in handles:
        dispatcher.unsubscribe(handle)
    assert "ZeroDivisionError" in caplog.text


def test_custom_events_reach_subscribers_of_their_kind():
    dispatcher = EventDispatcher.instance()
    seen = []
    handle = dispatcher.subscribe(EventId.CUSTOM_EVENT, lambda _, pairs: seen.append(pairs))
    dispatcher.publish(EventId.CUSTOM_EVENT, [("epoch", 3)])
    dispatcher.publish(EventId.MARK_STEP)
    dispatcher.unsubscribe(handle)
    assert seen == [[("epoch", "3")]]


def test_callbacks_end_when_the_metric_stops():
    numbers = []
    with metric_localcontext("cpu_fallback") as metric:
        metric.on_metric_change(lambda each: numbers.append(dict(each.stats())["TotalNumber"]))
        eval(FALLBACK)
    eval(FALLBACK)
    assert numbers == [1]


@pytest.mark.parametrize("variable", ["PT_HPU_METRICS", "HABANA_PT_METRICS"])
def test_metrics_are_written_at_the_triggers_in_the_environment(forked_script, tmp_path, variable):
    target = tmp_path / "new" / "metrics.json"
    forked_script(
        """
        import torch
        import habana_frameworks.torch.core as htcore
        for _ in range(2):
            torch.ones(3, device="hpu") + 1
            htcore.mark_step()
        """,
        simulated=True,
        PT_HPU_LAZY_MODE="1",
        **{f"{variable}_FILE": str(target)},
        **{f"{variable}_DUMP_TRIGGERS": "mark_step,process_exit"},
    )
    records = json.loads(target.read_text())
    assert [(record["metric_name"], record["triggered_by"]) for record in records] == [
        (name, trigger)
        for trigger in ("mark_step", "mark_step", "process_exit")
        for name in ("graph_compilation", "cpu_fallback", "memory_defragmentation")
    ]
    assert records[-3]["statistics"]["TotalNumber"] == 1
    assert records[-3]["generated_on"].count(":") == 2


def test_change_of_a_metric_triggers_a_text_record(forked_script, tmp_path):
    target = tmp_path / "metrics.txt"
    forked_script(
        f"""
        import torch
        import habana_frameworks.torch.core
        x = torch.ones(2, device="hpu") + 1
        {FALLBACK}
        """,
        simulated=True,
        PT_HPU_METRICS_FILE=str(target),
        PT_HPU_METRICS_FILE_FORMAT="text",
        PT_HPU_METRICS_DUMP_TRIGGERS="metric_change",
    )
    [block] = target.read_text().strip().split("\n\n")
    name, trigger, generated, heading, *rows = block.splitlines()
    assert (name, trigger) == ("Metric name: cpu_fallback", "Triggered by: metric_change")
    assert generated.startswith("Generated on: 20")
    assert heading == "Statistics:"
    assert rows[0] == "\tTotalNumber: 1"
    assert rows[1].startswith("\tFallbackOps: {'aten::")


def test_process_without_card_writes_no_file(forked_script, tmp_path):
    target = tmp_path / "metrics.json"
    forked_script("import torch", simulated=True, PT_HPU_METRICS_FILE=str(target))
    assert not target.exists()


def test_requested_file_is_text_or_json(tmp_path):
    torch.ones(1, device="hpu")
    metrics_dump(str(tmp_path / "metrics.txt"), "text")
    lines = (tmp_path / "metrics.txt").read_text().splitlines()
    assert lines[:2] == ["Metric name: graph_compilation", "Triggered by: user"]
    assert lines[3] == "Statistics:"
    assert lines[4].startswith("\tTotalNumber: ")
    with pytest.raises(ValueError, match=r"must be .json. or .text., got .xml."):
        metrics_dump(str(tmp_path / "metrics.xml"), "xml")


def test_profile_contains_operators_and_events_of_the_bridge(tmp_path, needs):
    needs("PROFILED_CARDS")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.HPU]) as profiled:
        torch.ones(4, 4, device="hpu") @ torch.ones(4, 4, device="hpu")
        eval(FALLBACK)
    assert "aten::mm" in profiled.key_averages().table()
    path = tmp_path / "trace.json.gz"
    profiled.export_chrome_trace(str(path))
    with gzip.open(path, "rt") as file:
        trace = json.load(file)
    (product,) = (event for event in trace["traceEvents"] if event["name"] == "aten::mm")
    fallback, wait = (event for event in trace["traceEvents"] if event.get("cat") == "Runtime")
    assert fallback["name"].startswith("cpu_fallback aten::linalg_lstsq")
    assert wait["name"].startswith("host_synchronization aten::linalg_lstsq")
    # Both use one clock in microseconds; on a busy machine PyTorch's can be off by milliseconds.
    assert abs(fallback["ts"] - product["ts"]) < 1e8
    assert trace["deviceProperties"][-1]["name"] == torch.hpu.get_device_name()


def test_activities_equal_pytorchs(tmp_path):
    kinds, theirs = ProfilerActivity, torch._C._profiler.ProfilerActivity
    assert kinds is activity_profiler.ProfilerActivity
    assert {each.name: each.value for each in kinds} == {"CPU": 1, "CUDA": 2, "HPU": 3}
    assert not isinstance(kinds.CPU, theirs)
    assert torch.profiler.supported_activities() == {kinds.CPU, kinds.HPU}
    assert theirs.CPU in torch.profiler.supported_activities()
    assert (kinds.CPU in {theirs.CUDA, kinds.CPU}, kinds.CPU == theirs.CUDA) == (True, False)
    for options in ({}, {"activities": [kinds.CPU]}, {"activities": [theirs.CPU]}):
        with torch.profiler.profile(**options) as profiled:
            torch.ones(4, device="hpu").relu()
        assert theirs.CPU in profiled.activities
        assert "aten::relu" in {each.key for each in profiled.key_averages()}


def test_profile_with_a_schedule_is_written_for_tensorboard(tmp_path):
    handler = tensorboard_trace_handler(str(tmp_path))
    with profile(schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=handler) as steps:
        for _ in range(4):
            torch.ones(4, device="hpu").relu()
            steps.step()
    (file,) = tmp_path.glob("*.pt.trace.json")
    names = [event["name"] for event in json.loads(file.read_text())["traceEvents"]]
    assert names.count("aten::relu") == 2
