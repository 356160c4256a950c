"""Test Lightning's profilers with operations on the card."""

import json

import pytest


@pytest.fixture
def profiled(torch, trainer, net, loader):
    """A function that runs a short fit with a profiler."""

    return lambda profiler: trainer("hpu", max_epochs=1, profiler=profiler).fit(net(), loader())


def test_profile_has_a_table_and_traces(lightning, profiled, tmp_path):
    from hpu_magic.lightning import HPUProfiler

    profiler = HPUProfiler(
        dirpath=tmp_path,
        filename="net",
        row_limit=-1,
        group_by_input_shapes=True,
        record_shapes=True,
        record_module_names=True,
        table_kwargs={"max_name_column_width": 200},
    )
    assert isinstance(profiler, lightning.profilers.PyTorchProfiler)
    profiled(profiler)
    table = (tmp_path / "fit-net.txt").read_text()
    assert "aten::addmm" in table
    assert "[pl][profile][Strategy]SingleHPUStrategy.training_step" in table
    assert "[pl][module]torch.nn.modules.linear.Linear: head" in table
    assert "[8, 8]" in table
    [trace] = tmp_path.glob("*.pt.trace.json")
    written = json.loads(trace.read_text())
    names = {event.get("name") for event in written["traceEvents"]}
    assert {"aten::addmm", "process_labels"} <= names
    [device] = written["deviceProperties"]
    assert device["name"] == "GAUDI2"


def test_profiler_can_be_selected_by_name(trainer):
    from hpu_magic.lightning import HPUProfiler

    assert isinstance(trainer("hpu", profiler="hpu").profiler, HPUProfiler)
    assert type(trainer("hpu", profiler="simple").profiler).__name__ == "SimpleProfiler"


def test_hpu_is_added_to_the_activities(torch, needs):
    needs("PROFILED_CARDS")
    from habana_frameworks.torch.activity_profiler import DebugActivity

    from hpu_magic.lightning import HPUProfiler

    kinds = torch.profiler.ProfilerActivity

    def activities(**options):
        return HPUProfiler(**options)._profiler_kwargs["activities"]

    assert activities() == [kinds.CPU, kinds.HPU]
    assert activities(activities=[kinds.HPU]) == [kinds.HPU]
    assert activities(activities=[kinds.CPU]) == [kinds.CPU, kinds.HPU]
    profiler = HPUProfiler(
        debug_activities=[DebugActivity.BRIDGE_FUNCTION_CALLS], profile_memory=True
    )
    options = profiler._create_profiler(torch.profiler.profile)
    assert (options.profile_memory, options.activities) == (True, {kinds.CPU, kinds.HPU})


def test_invalid_options_are_refused(monkeypatch, torch):
    from hpu_magic.lightning import HPUProfiler

    with pytest.raises(Exception, match="Found sort_by_key: speed"):
        HPUProfiler(sort_by_key="speed")
    monkeypatch.setenv("HABANA_PROFILE", "profile_api")
    with pytest.raises(ValueError, match="HABANA_PROFILE is 'profile_api': unset this variable"):
        HPUProfiler()
