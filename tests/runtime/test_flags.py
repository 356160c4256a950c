"""Test %hpu_flags and %hpu_restart."""

import dataclasses
import os
from pathlib import Path

import pytest

import hpu_magic
from hpu_magic.runtime.execution.flags import READ, FlagsReport, documented
from hpu_magic.runtime.start import restart


def test_every_flag_is_complete_and_its_default_is_valid():
    assert len(documented()) >= 100
    for flag in documented().values():
        assert flag.read in READ
        assert flag.meaning.endswith(".")
        if flag.default:
            flag.check(flag.default)


def test_flags_of_the_simulated_release_are_documented():
    of_release = (
        *("RUNTIME_SCALE_PATCHING", "PT_HPU_H2D_TRIVIAL_SCALES_MODE", "PT_COMPILE_ONLY_MODE"),
        *("FUSER_ENABLE_MULTI_THREADED_INVOCATIONS", "PT_HPU_METRICS_GC_DETAILS"),
        "ENABLE_SKIP_REMOVAL_OF_GRAPH_INPUT_IDENTITY_NODES",
        "PT_HPU_EAGER_ENABLE_GRADIENT_VIEW_LAYOUT_OPT",
    )
    assert {*of_release} <= {*documented()}
    assert documented()["PT_HPU_LAZY_MODE"].default == "0"  # eager
    assert documented()["PT_HPU_RECIPE_CACHE_CONFIG"].default == ",false,1024,false"


def test_all_flags_are_listed_with_default_meaning_and_reader(run, torch):
    cell = run("%hpu_flags")
    assert "simulated" in cell.out
    assert len(cell.result.lines()) == len(documented())
    [line] = [line for line in cell.result.lines() if line[0] == "PT_HPU_PLACE_ON_CPU"]
    assert line[3] == "at import, by the bridge"
    assert "fall back to the CPU" in line[4]


def test_changed_flags_come_first_and_the_others_are_folded(run, torch, monkeypatch):
    names = [flag.name for flag in documented().values()]
    monkeypatch.setenv("HABANA_PROFILE", "profile_api_light")  # its default
    before = run("%hpu_flags").result
    # The environment of the tests sets some flags.
    changed = {flag.name for flag in documented().values() if before.differs(flag)}
    assert "HABANA_PROFILE" not in changed

    monkeypatch.setenv("PT_INFERENCE_RANGE_FILE", "ranges.txt")
    changed.add("PT_INFERENCE_RANGE_FILE")
    cell = run("%hpu_flags")
    ordered = [line[0] for line in cell.result.lines()]
    assert {*ordered[: len(changed)]} == changed
    assert sorted(ordered) == sorted(names)
    shown = cell.out.partition(": \n")[2].strip().splitlines()
    assert shown[0].startswith(f"{len(names)} runtime flags of hpu (simulated GAUDI2), ")
    assert shown[0].endswith(f", {len(changed)} of them changed")
    assert shown[1].split() == ["flag", "value", "default", "read", "meaning"]
    table = [line.split()[:2] for line in shown[2 : 2 + len(changed)]]
    assert ["PT_INFERENCE_RANGE_FILE", "ranges.txt"] in table
    assert {name for name, _ in table} == changed
    rest = f"{len(names) - len(changed)} others have default values; %hpu_flags WORD searches "
    assert shown[-1].strip().startswith(rest)
    open_part, folded = cell.result._repr_html_().split("<details>")
    assert {name for name in names if f">{name}<" in open_part} == changed
    assert {name for name in names if f">{name}<" in folded} == {*names} - changed


def test_one_line_says_that_all_flags_have_their_defaults():
    report = FlagsReport(list(documented().values()), {}, {}, folded=True)
    assert repr(report).splitlines()[1:] == [
        "  All have default values; %hpu_flags WORD searches names and meanings."
    ]


def test_spellings_of_the_same_switch_are_equal():
    switch = dataclasses.replace(documented()["PT_HPU_SYNC_LAUNCH"], kind="switch", default="true")
    same = [switch.same(value, "true") for value in ("1", "TRUE", "0", "false", "")]
    assert same == [True, True, False, False, False]


def test_word_is_searched_in_names_and_meanings(run, torch):
    names = [line[0] for line in run("%hpu_flags Cache_Metrics").result.lines()]
    assert names == ["PT_HPU_ENABLE_CACHE_METRICS"]
    meant = {flag.name for flag in documented().values() if "generator" in flag.meaning.lower()}
    shown = {line[0] for line in run("%hpu_flags generator").result.lines()}
    assert meant
    assert meant <= shown
    assert "Unknown flag 'zz'" in run("%hpu_flags zz").err
    with pytest.raises(ValueError, match="Unknown flag 'cache'"):
        hpu_magic.flags("cache", "1")


def test_flags_without_effect_on_the_simulator_are_marked(run, torch):
    lines = {line[0]: line[-1] for line in run("%hpu_flags").result.lines()}
    assert lines["PT_HPU_POOL_STRATEGY"] == (
        "Strategy with which the memory pool searches for a free block. No effect on the "
        "simulator: memory is allocated from the machine on demand."
    )
    assert lines["PT_HPU_LAZY_MODE"] == documented()["PT_HPU_LAZY_MODE"].meaning
    without = {name for name, text in lines.items() if "No effect on the simulator: " in text}
    assert without == {flag.name for flag in documented().values() if flag.simulated}


def test_flags_with_an_effect_occur_in_the_code():
    """Flags with an effect are used in the code, or belong to Neural Compressor."""
    package = Path(hpu_magic.__file__).parent
    folders = ("simulator/face", "simulator/native", "simulator/cards", "runtime/precision")
    sources = "".join(
        path.read_text(encoding="utf-8")
        for folder in folders
        for pattern in ("*.py", "*.cpp", "*.h")
        for path in (package / folder).rglob(pattern)
    )
    others = ("PT_HPU_METRICS_", "LOG_LEVEL_INC", "INC_LOG_")
    effective = [flag.name for flag in documented().values() if not flag.simulated]
    assert len(effective) > 30
    assert [n for n in effective if n not in sources and not n.startswith(others)] == []


def test_setting_a_flag_without_effect_adds_a_note(run, torch, forgetful):
    cell = run("%hpu_flags PT_HPU_SYNC_LAUNCH=1")
    note = "No effect on the simulator: there are no separate threads and streams."
    assert note in cell.result.notes()


def test_prefix_lists_all_flags_that_begin_with_it(run):
    names = [flag.name for flag in run("%hpu_flags PT_HPU_METRICS").result.flags]
    assert "PT_HPU_METRICS_FILE" in names
    assert all(name.startswith("PT_HPU_METRICS") for name in names)


def test_flag_set_after_import_is_remembered_for_a_restart(run, torch, forgetful):
    cell = run("%hpu_flags PT_HPU_ENABLE_CACHE_METRICS=1")
    assert "not set (1 after a restart)" in cell.out
    assert "%hpu_flags --restart" in cell.out
    assert restart.recall() == {"PT_HPU_ENABLE_CACHE_METRICS": "1"}
    assert "PT_HPU_ENABLE_CACHE_METRICS" not in os.environ
    assert run("%hpu_flags PT_HPU_ENABLE_CACHE_METRICS=").result.pending == {}
    assert restart.recall() == {}


def test_flag_that_is_remembered_with_its_default_is_not_changed(run, torch, forgetful):
    restart.remember({"PT_HPU_LAZY_MODE": "0"})
    report = run("%hpu_flags PT_HPU_LAZY_MODE").result
    assert report.pending == {}
    assert not report.differs(report.flags[0])


def test_flag_set_before_import_takes_effect_and_is_remembered(notebook):
    read = "import os; print('has', os.environ['PT_HPU_MAX_COMPOUND_OP_SIZE'])"
    out = notebook("%load_ext hpu_magic", "%hpu_flags PT_HPU_MAX_COMPOUND_OP_SIZE=7", read)
    assert "takes effect with" in out
    assert "has 7" in out
    again = notebook("%load_ext hpu_magic", read, "import torch", "%hpu_flags PT_HPU_MAX_COMP")
    assert "Remembered for this notebook: PT_HPU_MAX_COMPOUND_OP_SIZE=7" in again
    assert "has 7" in again
    assert "after a restart" not in again


def test_variable_set_after_the_import_is_not_shown_as_the_value(notebook):
    out = notebook(
        "%load_ext hpu_magic",
        "import torch, os",
        "os.environ['PT_HPU_MAX_COMPOUND_OP_SIZE'] = '9'",
        "r = %hpu_flags PT_HPU_MAX_COMPOUND_OP_SIZE",
        "print('value', r.values.get('PT_HPU_MAX_COMPOUND_OP_SIZE'))",
    )
    assert "value None" in out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("PT_HPU_LAZY_MODES=1", "did you mean 'PT_HPU_LAZY_MODE'"),
        ("PT_HPU_LAZY_MODE=yes", "use 0 or 1"),
        ("PT_HPU_PRINT_STATS=maybe", "use 1 or 0"),
        ("HLS_MODULE_ID=one", "use a whole number"),
        ("HABANA_VISIBLE_DEVICES=0", "docker run -e HABANA_VISIBLE_DEVICES=0"),
        ("=1", "does not contain a flag name"),
        ("PT_HPU=1", "Unknown flag"),
    ],
)
def test_wrong_flag_or_value_is_rejected_without_effect(rejected, line, sentence):
    before = dict(os.environ)
    assert sentence in rejected(f"%hpu_flags {line}")
    assert dict(os.environ) == before
    assert restart.recall() == {}


def test_error_in_a_script_says_to_start_python_with_the_flag(forked_script):
    code = """
    import hpu_magic, torch
    try:
        hpu_magic.flags("PT_HPU_SYNC_LAUNCH", "1")
    except ValueError as error:
        print(error)
    """
    assert "start python with PT_HPU_SYNC_LAUNCH=1" in forked_script(code, simulated=True)


def test_restart_without_a_server_is_rejected(run):
    assert run("%hpu_restart").err == (
        "UsageError: No Jupyter server can restart this process: end this session and start a "
        "new one.\n"
    )
