"""Lightning's profilers, with what ran on the card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def profiled(torch: Any, trainer: Any, net: Any, loader: Any) -> Any:
    """Run a short fit under a profiler and return what its table says."""

    def run(profiler: Any) -> str:
        fit = trainer("hpu", max_epochs=1, profiler=profiler)
        fit.fit(net(), loader())
        found = sorted(Path(fit.log_dir).rglob("fit-*.txt"))
        return found[0].read_text() if found else ""

    return run


def test_a_profile_has_a_table_and_traces(lightning: Any, profiled: Any, tmp_path: Path) -> None:
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


def test_the_profiler_has_a_name(trainer: Any) -> None:
    from hpu_magic.lightning import HPUProfiler

    assert isinstance(trainer("hpu", profiler="hpu").profiler, HPUProfiler)
    assert type(trainer("hpu", profiler="simple").profiler).__name__ == "SimpleProfiler"


def test_the_card_is_added_to_the_activities(torch: Any, needs: Any) -> None:
    needs("PROFILED_CARDS")
    from habana_frameworks.torch.activity_profiler import DebugActivity

    from hpu_magic.lightning import HPUProfiler

    kinds = torch.profiler.ProfilerActivity

    def activities(**options: Any) -> Any:
        return HPUProfiler(**options)._profiler_kwargs["activities"]

    assert activities() == [kinds.CPU, kinds.HPU]
    assert activities(activities=[kinds.HPU]) == [kinds.HPU]
    assert activities(activities=[kinds.CPU]) == [kinds.CPU, kinds.HPU]
    made = HPUProfiler(debug_activities=[DebugActivity.BRIDGE_FUNCTION_CALLS], profile_memory=True)
    options = made._create_profiler(torch.profiler.profile)
    assert (options.profile_memory, options.activities) == (True, {kinds.CPU, kinds.HPU})


def test_options_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    from hpu_magic.lightning import HPUProfiler

    with pytest.raises(Exception, match="Found sort_by_key: speed"):
        HPUProfiler(sort_by_key="speed")
    monkeypatch.setenv("HABANA_PROFILE", "profile_api")
    with pytest.raises(ValueError, match="HABANA_PROFILE is 'profile_api': unset that variable"):
        HPUProfiler()
